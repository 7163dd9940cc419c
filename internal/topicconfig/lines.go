package topicconfig

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
)

// TopicLine is a topic of a list in JSON.
type TopicLine struct {
	Topic    string `json:"topic"`
	Shards   int    `json:"shards"`
	Exchange string `json:"exchange"`
	Paused   bool   `json:"paused"`
	Until    string `json:"paused_until,omitempty"`
	Reason   string `json:"paused_reason,omitempty"`
	Index    uint64 `json:"index"`
	Error    string `json:"error,omitempty"`
}

// NewTopicLines returns a line for each document.
func NewTopicLines(docs []config.Document) []TopicLine {
	lines := make([]TopicLine, len(docs))
	for i, d := range docs {
		lines[i] = TopicLine{Topic: d.Name, Shards: d.Topic.Shards, Exchange: d.Topic.Exchange, Paused: d.Topic.Paused,
			Index: d.Index, Error: mistakes(d)}
		if d.Topic.Paused {
			lines[i].Until, lines[i].Reason = d.Topic.PausedUntil, d.Topic.PausedReason
		}
	}
	return lines
}

// DocumentLine is a document in JSON.
type DocumentLine struct {
	Topic    string         `json:"topic"`
	Index    uint64         `json:"index"`
	Settings map[string]any `json:"settings"`
	Document string         `json:"document"`
	Error    string         `json:"error,omitempty"`
}

// NewDocumentLine returns a document with the settings in raw.
func NewDocumentLine(d config.Document, raw []byte) DocumentLine {
	return DocumentLine{Topic: d.Name, Index: d.Index, Settings: inSections(config.Given(d.Name, raw)),
		Document: string(d.Raw), Error: mistakes(d)}
}

// inSections returns settings by key as in JSON: sections are objects.
func inSections(given map[string]any) map[string]any {
	all := map[string]any{}
	for key, value := range given {
		section, leaf, nested := strings.Cut(key, ".")
		if !nested {
			all[key] = value
			continue
		}
		under, ok := all[section].(map[string]any)
		if !ok {
			under = map[string]any{}
			all[section] = under
		}
		under[leaf] = value
	}
	return all
}

func mistakes(d config.Document) string {
	if d.Err == nil {
		return ""
	}
	return d.Err.Error()
}

// HistoryLine is a change of a topic's document in JSON.
type HistoryLine struct {
	Number  uint64        `json:"number"`
	At      time.Time     `json:"at,omitzero"`
	By      string        `json:"by,omitempty"`
	Verb    string        `json:"verb,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	What    string        `json:"what"`
	Changes []SettingLine `json:"changes"`
	// Document is empty if it was removed, or was too large to be kept.
	Document string `json:"document"`
	Error    string `json:"error,omitempty"`
}

// SettingLine is a setting that differs from the document before.
type SettingLine struct {
	Key string `json:"key"`
	Old string `json:"old"`
	New string `json:"new"`
}

// The values of HistoryLine.What.
const (
	made      = "made"
	modified  = "changed"
	removed   = "removed"
	dropped   = "too large to be kept"
	mistaken  = "broken"
	unsettled = "no setting changed"
)

// NewHistoryLines compares each document with the one before.
func NewHistoryLines(h consul.History) []HistoryLine {
	all := make([]HistoryLine, len(h.Changes))
	var before config.Document // the previous one; without a name if there was none
	for i, c := range h.Changes {
		line := HistoryLine{Number: c.Number, At: c.At, By: c.By, Verb: c.Verb, Reason: c.Reason,
			Document: string(c.Document), Changes: []SettingLine{}}
		var after config.Document
		switch {
		case c.Dropped:
			after = config.Document{Name: h.Topic, Err: errors.New(dropped)}
		case !c.Removed:
			after = config.ParseDocument(h.Topic, c.Document, 0)
		}
		switch {
		case c.Removed:
			line.What = removed
		case c.Dropped:
			line.What = dropped
		case after.Err != nil:
			line.What, line.Error = mistaken, after.Err.Error()
		case before.Name == "":
			line.What = made
		default:
			line.What = modified
		}
		for _, d := range difference(before, after) {
			line.Changes = append(line.Changes, SettingLine{d.Key, d.Old, d.New})
		}
		if line.What == modified && len(line.Changes) == 0 {
			line.What = unsettled
		}
		all[i], before = line, after
	}
	return all
}

// difference returns the settings in which two documents of a topic differ. If before is
// missing or broken, it returns the settings of after that differ from the defaults. If
// after is missing or broken, it returns none.
func difference(before, after config.Document) []config.Change {
	switch {
	case after.Name == "" || after.Err != nil:
		return nil
	case before.Name != "" && before.Err == nil:
		return config.Diff(before.Topic, after.Topic)
	}
	changes := config.Diff(config.DefaultTopic(after.Name), after.Topic)
	for i := range changes {
		changes[i].Old = ""
	}
	return changes
}

// Text describes the change on one line.
func (l HistoryLine) Text() string {
	if l.What == mistaken {
		return "! " + l.Error
	}
	var parts []string
	for _, c := range l.Changes {
		if c.Old == "" {
			parts = append(parts, c.Key+"="+c.New)
			continue
		}
		parts = append(parts, fmt.Sprintf("%s: %s -> %s", c.Key, c.Old, OrNone(c.New)))
	}
	if l.What == modified {
		return strings.Join(parts, ", ")
	}
	return strings.TrimSuffix(l.What+": "+strings.Join(parts, ", "), ": ")
}

// OrNone returns the value of a setting, "(none)" if it is empty.
func OrNone(value string) string {
	if value == "" {
		return "(none)"
	}
	return value
}

// Lines describes a plan: its notes, the settings that change, and the bindings and intakes
// that it leaves.
func (p Plan) Lines() (lines []string) {
	topic := p.After.Name
	for _, note := range p.Notes {
		lines = append(lines, fmt.Sprintf("topic %s: %s", topic, note))
	}
	for _, ch := range p.Changes {
		lines = append(lines, fmt.Sprintf("%s.%s: %s -> %s", topic, ch.Key, OrNone(ch.Old), OrNone(ch.New)))
	}
	for _, b := range p.LeftBindings() {
		lines = append(lines, fmt.Sprintf("topic %s: queue %s stays bound to exchange %s for key %s, so that each task "+
			"arrives in both queues; once scanners have applied this, unbind it: scanner topic set %s --unbind-old", topic,
			b.Queue, b.Exchange, b.RoutingKey, topic))
	}
	for _, l := range p.LeftIntakes {
		advice := "let its publishers use another exchange first; then move what is in the queue, and unbind it"
		if l.Served {
			advice = "once scanners have applied this, unbind it"
		}
		lines = append(lines, fmt.Sprintf("topic %s: %s; %s: scanner topic set %s --unbind-old", topic, LeftText(l), advice,
			topic))
	}
	return lines
}
