package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/task"
)

// examineBroken reports each document with mistakes once, and names the scanners that
// refuse it.
func (p Target) examineBroken(ctx context.Context, r *report, docs documents, fleet fleetView) {
	names := slices.Sorted(maps.Keys(docs.broken))
	// Without time they are broken too, only the advice is shorter.
	r.eachTopic(context.WithoutCancel(ctx), "documents", names, func(r *report, name string) {
		doc := docs.broken[name]
		r.fail("topic "+name+" document", p.fixDocument(ctx, doc), "%v%s", doc.Err, refusing(fleet, name))
	})
}

// refusing names the members that refuse a topic's document.
func refusing(fleet fleetView, topic string) string {
	var names []string
	for _, p := range fleet.of(problem.DocumentRefused) {
		if p.Topic == topic {
			names = p.Nodes
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; " + scanners(names, "refuses it, and uses the last good one if there is one",
		"refuse it, and use the last good one if there is one")
}

// fixDocument returns the command that fixes all mistakes of a document. If the history
// has an earlier good document, it also returns the command that restores that. No command
// removes the topic or loses a setting that is in force.
func (p Target) fixDocument(ctx context.Context, doc config.Document) string {
	if task.CheckTopic(doc.Name) != nil {
		return fmt.Sprintf("write it under a name that a topic may have, then take it away here: %s",
			p.command("topic rm "+strconv.Quote(doc.Name)))
	}
	force := p.inForce(ctx, doc.Name)
	undo := p.undo(ctx, doc, force)
	set := assignments(doc.Err)
	switch {
	case len(set) > 0 && undo != "":
		return p.command("topic set "+doc.Name+" "+strings.Join(set, " ")) + "; or, back to the document from before, " + undo
	case len(set) > 0:
		return p.command("topic set " + doc.Name + " " + strings.Join(set, " "))
	case undo != "": // it can't be read, so no single line can be fixed
		return undo
	case force != nil:
		return p.command("topic set "+doc.Name+" "+strings.Join(restoring(doc.Name, *force), " ")+" --replace") +
			"; that is the document in force"
	}
	return fmt.Sprintf("correct the text of the key %s/topics/%s in consul", p.Settings.Consul.Prefix, doc.Name)
}

// inForce returns the topic's settings that the fleet keeps in Redis; nil if they can't be
// read.
func (p Target) inForce(ctx context.Context, name string) *config.Topic {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	raw, err := p.Store.Registry().Document(ctx, name)
	if err != nil || raw == nil {
		return nil
	}
	topic, err := config.ParseTopic(name, raw)
	if err != nil {
		return nil
	}
	return &topic
}

// restoring returns the arguments for `topic set` that make a topic from nothing.
func restoring(name string, topic config.Topic) (set []string) {
	for _, c := range config.Diff(config.ParseDocument(name, []byte("{}"), 0).Topic, topic) {
		value := c.Key + "=" + c.New
		if strings.ContainsFunc(c.New, notPlain) {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		set = append(set, value)
	}
	return set
}

// assignments returns the arguments for `topic set` that fix the mistakes. KEY= removes
// an unknown key, and KEY=VALUE asks the user for another value. It returns nil if a
// mistake isn't about one key.
func assignments(err error) (all []string) {
	var mistakes config.Errors
	if !errors.As(err, &mistakes) {
		return nil
	}
	for _, m := range mistakes {
		assignment := m.Key + "=VALUE"
		if m.Unknown() {
			assignment = m.Key + "="
		}
		switch {
		case m.Key == "" || strings.ContainsFunc(m.Key, notPlain):
			return nil
		case !slices.Contains(all, assignment):
			all = append(all, assignment)
		}
	}
	return all
}

// notPlain reports whether a character may have a special meaning to a shell.
func notPlain(r rune) bool {
	plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
	return !plain
}

// undo returns the command that restores the document before a broken one; "" if the
// history has no good one. The text names settings in force that this would change.
func (p Target) undo(ctx context.Context, doc config.Document, force *config.Topic) string {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	h, err := p.Consul.History(ctx, doc.Name)
	if err != nil {
		return ""
	}
	before, there := h.Seen(doc.Raw, true).Before()
	old := config.ParseDocument(doc.Name, before.Document, 0)
	if !there || old.Err != nil {
		return ""
	}
	command := p.command("topic undo " + doc.Name)
	if force == nil {
		return command
	}
	if changes := differences(*force, old.Topic, "would be"); len(changes) > 0 {
		command += "; that isn't the document in force: " + strings.Join(changes, ", ")
	}
	return command
}

// differences returns a phrase for each setting that differs, as in "rate is 5 and should
// be 7".
func differences(is, other config.Topic, verb string) (all []string) {
	for _, c := range config.Diff(is, other) {
		all = append(all, fmt.Sprintf("%s is %s and %s %s", c.Key, cmp.Or(c.Old, "(none)"), verb, cmp.Or(c.New, "(none)")))
	}
	return all
}
