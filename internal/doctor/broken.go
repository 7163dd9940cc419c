package doctor

import (
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
	for _, name := range slices.Sorted(maps.Keys(docs.broken)) {
		doc := docs.broken[name]
		r.fail("topic "+name+" document", p.fixDocument(ctx, doc), "%v%s", doc.Err, refusing(fleet, name))
	}
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
// has an earlier good document, it also returns the command that restores that. Neither
// command removes the topic.
func (p Target) fixDocument(ctx context.Context, doc config.Document) string {
	if task.CheckTopic(doc.Name) != nil {
		return fmt.Sprintf("write it under a name that a topic may have, then take it away here: %s",
			p.command("topic rm "+strconv.Quote(doc.Name)))
	}
	set := assignments(doc.Err)
	if len(set) == 0 { // it can't be read, so no single line can be fixed
		set = []string{"KEY=VALUE...", "--replace"}
	}
	fix := p.command("topic set " + doc.Name + " " + strings.Join(set, " "))
	if p.undoes(ctx, doc) {
		fix += "; or, back to the document from before, " + p.command("topic undo "+doc.Name)
	}
	return fix
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

// undoes reports whether the history has a good document before this one, which `topic
// undo` would restore.
func (p Target) undoes(ctx context.Context, doc config.Document) bool {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	h, err := p.Consul.History(ctx, doc.Name)
	if err != nil {
		return false
	}
	before, there := h.Seen(doc.Raw, true).Before()
	return there && config.ParseDocument(doc.Name, before.Document, 0).Err == nil
}
