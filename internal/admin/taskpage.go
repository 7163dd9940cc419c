package admin

import (
	"cmp"
	"context"
	"hash/maphash"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// TaskCursor is a place in the order of a list with a Limit: behind the task with this time
// and ID. The zero value is the begin.
type TaskCursor struct {
	// Next is the task's Stored.Next: zero for a parked task.
	Next time.Time
	ID   string
}

// before reports whether a task is behind the cursor.
func (c TaskCursor) before(l Listed) bool {
	switch {
	case c.ID == "":
		return true
	case c.Next.IsZero() != l.Next.IsZero():
		return l.Next.IsZero()
	}
	return cmp.Or(l.Next.Compare(c.Next), strings.Compare(l.ID, c.ID)) > 0
}

// Page returns at most Limit of the selected tasks, the first ones behind a cursor, and
// whether there are more. A page doesn't depend on the tasks before it: if they go, it
// stays the same. A task that moves to another shard meanwhile may be missing. It returns
// the same errors as Each, and the tasks also with an *shard.UnreadableError.
func (t Tasks) Page(ctx context.Context, after TaskCursor) (page []Listed, more bool, err error) {
	placement, err := t.Topic.Placement(ctx)
	if err != nil {
		return nil, false, err
	}
	first := firstTasks{limit: t.Limit + 1}
	w := walk{Tasks: t, seed: maphash.MakeSeed(), met: map[uint64]struct{}{}}
	failed := map[int]error{}
	for _, at := range placement.InOrder() {
		for _, span := range t.spans() {
			err := w.after(ctx, at, span, after, first.add)
			if shard.Definite(err) && !shard.Denied(err) {
				failed[at], err = err, nil
			}
			if err != nil {
				return nil, false, err
			}
		}
	}
	page = first.sorted()
	return page[:min(len(page), t.Limit)], len(page) > t.Limit, t.Topic.LeftOut(placement.Scanned(), failed)
}

// after visits the tasks of a span behind a cursor, one more than Limit if they are sorted.
func (w *walk) after(ctx context.Context, at int, span shard.Span, after TaskCursor, add func(Listed) bool) error {
	leased := span == shard.SpanOf(task.Leased)
	if waiting := !leased && span != shard.SpanOf(task.Parked); waiting && after.ID != "" {
		if after.Next.IsZero() {
			return nil // they come before the parked ones
		}
		span = span.Within(after.Next, time.Time{})
	}
	found, list := 0, w.list(at, span)
	for {
		page, err := list.Next(ctx)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, s := range page {
			l := newListed(s)
			if !w.asked(l) || !after.before(l) || !w.first(l.ID) {
				continue
			}
			add(l)
			if found++; found > w.Limit && !leased {
				return nil
			}
		}
	}
}

// FindTask returns a task with its payload, and the shard that has it. If there is none, the
// error is task.ErrNotFound.
func FindTask(ctx context.Context, t *shard.Topic, id string) (found Listed, at int, err error) {
	p, err := t.Placement(ctx)
	for err == nil {
		for _, at := range p.Where(id) {
			fetched := t.Fetch(ctx, p, []shard.Names{{Shard: at, IDs: []string{id}}})[0]
			if fetched.Err == nil && len(fetched.Tasks) == 1 && fetched.Tasks[0] != nil {
				return newListed(*fetched.Tasks[0]), at, nil
			}
			err = cmp.Or(err, fetched.Err)
		}
		now, failure := t.Placement(ctx)
		if failure != nil {
			return found, 0, failure
		}
		if now == p {
			return found, 0, cmp.Or(err, error(task.ErrNotFound))
		}
		p, err = now, nil // it may have moved
	}
	return found, 0, err
}
