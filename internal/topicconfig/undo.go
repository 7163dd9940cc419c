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
	return p, removed, nil
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

// LeftBindings returns the bindings that earlier documents in a topic's history made and
// that its present settings don't.
func LeftBindings(h consul.History, now config.Topic) []config.Binding {
	var earlier []config.Topic
	for _, change := range h.Changes {
		if doc := config.ParseDocument(h.Topic, change.Document, 0); !change.Removed && !change.Dropped && doc.Err == nil {
			earlier = append(earlier, doc.Topic)
		}
	}
	return config.LeftBindings(earlier, now)
}

// UnbindOld removes the bindings that earlier documents of a topic left, with unbind. It
// returns them with the present document.
func (d Documents) UnbindOld(ctx context.Context, topic string, fleet Fleet,
	unbind func(context.Context, []config.Binding) error) (config.Document, []config.Binding, error) {
	h, doc, err := d.History(ctx, topic)
	switch {
	case err != nil:
		return doc, nil, fmt.Errorf("topic %s: the queues that were declared before can't be read: %w", topic, err)
	case doc.Index == 0:
		return doc, nil, NoDocumentError(topic)
	case doc.Err != nil:
		return doc, nil, fmt.Errorf("topic %s: its document has mistakes, nothing was unbound: %w", topic, doc.Err)
	}
	bindings := LeftBindings(h, doc.Topic)
	if len(bindings) == 0 {
		return doc, nil, nil
	}
	if err = mayUnbind(ctx, fleet, doc); err == nil {
		err = unbind(ctx, bindings)
	}
	if err != nil {
		return doc, nil, fmt.Errorf("topic %s: %w", topic, err)
	}
	return doc, bindings, nil
}

// mayUnbind returns an error unless all live scanners have applied the document. A scanner
// that hasn't could bind an old queue again, and without any the new queue may not be bound
// yet.
func mayUnbind(ctx context.Context, fleet Fleet, doc config.Document) error {
	why, err := fleet.Applied(ctx, doc.Name, doc.Index)
	if err != nil {
		return fmt.Errorf("nothing was unbound, because it isn't known whether scanners apply the document: %w", err)
	}
	if why != "" {
		return fmt.Errorf("nothing was unbound, because not all scanners apply the document: %s; then try again: "+
			"scanner topic set %s --unbind-old", why, doc.Name)
	}
	return nil
}
