package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Change is one setting that differs. Old is empty if it was not set before, New if it is
// not set any more.
type Change struct{ Key, Old, New string }

// Diff returns the differences between two topics' settings, defaults included.
func Diff(before, after Topic) []Change {
	was, is := Effective(before), Effective(after)
	var changes []Change
	for _, f := range topicFields() {
		if was[f.key] != is[f.key] {
			changes = append(changes, Change{f.key, was[f.key], is[f.key]})
		}
	}
	return changes
}

// Effective returns every setting of a topic by its key, as Draft.Assign takes them, defaults
// included. It leaves out the sections that the topic lacks.
func Effective(t Topic) map[string]string {
	all := map[string]string{}
	for _, f := range topicFields() {
		if value, there := f.of(t); there {
			all[f.key] = show(value)
		}
	}
	return all
}

// Given returns what a topic's document sets, by key, without defaults. Durations are texts.
// It omits the unreadable parts of a broken document.
func Given(name string, doc []byte) map[string]any {
	all := readTopic(name, doc, &errorList{}).plain()
	for key, value := range all {
		if d, ok := value.(time.Duration); ok {
			all[key] = showDuration(d)
		}
	}
	return all
}

// plain returns the values by key.
func (s settings) plain() map[string]any {
	all := map[string]any{}
	for key, g := range s.values {
		all[key] = g.value
	}
	return all
}

// Key is the key of a topic's setting, such as declare.queue. Words are the values that it
// accepts; nil if they can't be listed.
type Key struct {
	Name  string
	Words []string
}

// TopicKeys returns the keys of all settings of topics, in the order of a document.
func TopicKeys() (all []Key) {
	for _, f := range topicFields() {
		all = append(all, Key{f.key, f.words})
	}
	return all
}

// Complete returns a topic as a document with all keys, even those with default values.
// There are two exceptions. It omits the keys of a section that the topic lacks. It also
// omits a text that is empty like its default, because scanners of an older version may
// not know its key.
func Complete(t Topic) []byte {
	s := newSettings()
	defaults := DefaultTopic("orders")
	defaults.Declare, defaults.Intake = &Declare{}, newIntake("orders")
	setDefaults(defaults.Declare)
	for _, f := range topicFields() {
		byDefault, _ := f.of(defaults)
		if value, there := f.of(t); there && (value != "" || byDefault != "") {
			s.values[f.key] = given{value: value}
		}
	}
	return render(s)
}

// render writes a topic's settings as YAML, in the table's order.
func render(s settings) []byte {
	var out bytes.Buffer
	open := ""
	for _, f := range topicFields() {
		g, ok := s.values[f.key]
		section, leaf, nested := strings.Cut(f.key, ".")
		switch {
		case nested && section != open && s.under(section):
			fmt.Fprintf(&out, "%s:\n", section)
		case nested && section != open && s.holds(section):
			fmt.Fprintf(&out, "%s: {}\n", section)
		}
		if nested {
			open = section
		}
		switch {
		case ok && nested:
			fmt.Fprintf(&out, "  %s: %s\n", leaf, scalar(g.value))
		case ok:
			fmt.Fprintf(&out, "%s: %s\n", f.key, scalar(g.value))
		}
	}
	if out.Len() == 0 {
		return []byte("{}\n")
	}
	return out.Bytes()
}

// scalar writes a value so that YAML reads it as the same type. A text that YAML could
// read as another type becomes a JSON string, which is valid YAML.
func scalar(value any) string {
	text, ok := value.(string)
	if !ok || isPlain(text) {
		return show(value)
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(fmt.Sprintf("marshal a string: %v", err)) // no string fails
	}
	return string(quoted)
}

// isPlain reports whether a text needs no quotes in any version of YAML.
func isPlain(text string) bool {
	words := []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"}
	if text == "" || slices.Contains(words, strings.ToLower(text)) || letters("._-", 255)(text) != "" {
		return false
	}
	return strings.Trim(text[:1], "0123456789._-") != ""
}
