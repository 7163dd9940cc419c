package topicconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
)

// PlanUndo plans to write the document that change to left. If to is 0, it takes the
// nearest document before the newest change that scanners would read. removed reports
// whether the topic's document was removed.
func (d Documents) PlanUndo(ctx context.Context, topic string, to uint64) (p Plan, removed bool, err error) {
	h, found, err := d.History(ctx, topic)
	p.Found = found
	if err != nil {
		return p, false, err
	}
	at, before, err := goal(h, to)
	if err != nil {
		return p, false, fmt.Errorf("topic %s: %w", topic, err)
	}
	removed = h.Changes[len(h.Changes)-1].Removed
	p.Same = !removed && bytes.Equal(before.Raw, found.Raw)
	p.After, p.Changes, p.Notes = before, difference(found, before), undone(h, at)
	if !p.Same {
		err = d.CheckTogether(ctx, &p)
	}
	return p, removed, err
}

// undone describes the changes after index at, which an undo to that change reverts, the
// newest first.
func undone(h consul.History, at int) (notes []string) {
	last := len(h.Changes) - 1
	for i := last; i > at; i-- {
		c := h.Changes[i]
		text := fmt.Sprintf("undoes change %d, %s", c.Number, described(c))
		if i < last && !c.Removed && !c.Dropped && config.ParseDocument(h.Topic, c.Document, 0).Err != nil {
			text = fmt.Sprintf("passes over change %d, whose document has mistakes", c.Number)
		}
		notes = append(notes, text)
	}
	return notes
}

// goal returns the document to restore and its index in the history.
func goal(h consul.History, to uint64) (at int, doc config.Document, err error) {
	if to > 0 {
		if at = slices.IndexFunc(h.Changes, func(c consul.Change) bool { return c.Number == to }); at < 0 {
			return at, doc, fmt.Errorf("its history has no change %d, but %d to %d", to, h.Changes[0].Number,
				h.Changes[len(h.Changes)-1].Number)
		}
		doc, err = left(h, at)
		return at, doc, err
	}
	err = errors.New("its history has no document from before the one in force")
	for at = len(h.Changes) - 2; at >= 0; at-- {
		doc, err = left(h, at)
		var mistakes config.Errors
		if !errors.As(err, &mistakes) {
			return at, doc, err
		}
	}
	return at, doc, err
}

// left returns the document that a change left. It fails if there was none, or if
// scanners would not read it.
func left(h consul.History, at int) (config.Document, error) {
	switch c := h.Changes[at]; {
	case c.Removed:
		return config.Document{}, fmt.Errorf("after change %d it had no document; `scanner topic rm %s` removes it", c.Number,
			h.Topic)
	case c.Dropped:
		return config.Document{}, fmt.Errorf("the document of change %d was too large to be kept", c.Number)
	default:
		doc := config.ParseDocument(h.Topic, c.Document, 0)
		if doc.Err != nil {
			return doc, fmt.Errorf("scanners would not read the document of change %d, it has mistakes: %w", c.Number, doc.Err)
		}
		return doc, nil
	}
}

// described returns the verb, the author, the time and the reason of a change, if known.
func described(c consul.Change) string {
	if c.By == "" {
		return "which another tool made"
	}
	text := fmt.Sprintf("%s by %s at %s", c.Verb, c.By, c.At.UTC().Format("2006-01-02T15:04:05Z"))
	if c.Reason != "" {
		text += " (" + c.Reason + ")"
	}
	return text
}
