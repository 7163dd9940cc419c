package operate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Parked are the parked tasks of one topic, for an operator.
type Parked struct {
	Topic *shard.Topic
	// Progress is told, where all tasks are replayed or purged, how many of them were
	// visited, and about how many there are. May be nil.
	Progress func(visited, of int64)
	// Filter leaves out tasks that Each, and a change of all, would visit.
	Filter ParkedFilter
	// Limit is how many tasks a change of all changes at most; 0: no limit.
	Limit int
	// Rate is how many tasks a second a change of all changes at most; 0: no limit.
	Rate int
}

// ParkedFilter is which of the parked tasks are meant; the zero value is all.
type ParkedFilter struct {
	// Reason is a part of why they were parked, in capitals or not; "": any.
	Reason string
	// Before is the time before which they were parked; zero: any. Those of which nobody
	// knows when, as of a damaged record, are not among them.
	Before time.Time
}

// matches reports whether a parked task is meant.
func (f ParkedFilter) matches(r shard.Record) bool {
	old := f.Before.IsZero() || !r.ReasonAt.IsZero() && r.ReasonAt.Before(f.Before)
	return old && strings.Contains(strings.ToLower(r.Reason), strings.ToLower(f.Reason))
}

// matching are those of a page that are meant.
func (f ParkedFilter) matching(page []shard.Record) []shard.Record {
	return slices.DeleteFunc(page, func(r shard.Record) bool { return !f.matches(r) })
}

// parkedPage is how many parked tasks are read at once at most.
const parkedPage = 500

// Each calls yield with every parked task until it returns false. Shards that can't be
// read are left out, and named by an *shard.UnreadableError at the end.
func (p Parked) Each(ctx context.Context, yield func(shard.Record) bool) error {
	placement, err := p.Topic.Placement(ctx)
	if err != nil {
		return err
	}
	return p.walk(ctx, placement, func(_ int, page []shard.Record) (bool, error) {
		for _, r := range p.Filter.matching(page) {
			if !yield(r) {
				return false, nil
			}
		}
		return true, nil
	})
}

// Replay makes one parked task due now, or all that the filter means if id is "": once
// each that was parked when the call came to its shard. It returns how many; none for an ID is
// task.ErrNotFound. Records that can't be read stay parked, and are named, as are shards
// that can't be, by a *LeftError.
func (p Parked) Replay(ctx context.Context, id string) (int, error) {
	return p.change(ctx, id, change{shard.Shard.Replay, true})
}

// Purge removes one parked task for good, or all that the filter means if id is "", as
// Replay does. Records
// that can't be read go, too.
func (p Parked) Purge(ctx context.Context, id string) (int, error) {
	return p.change(ctx, id, change{shard.Shard.PurgeParked, false})
}

// change is what is done about parked tasks.
type change struct {
	do func(s shard.Shard, ctx context.Context, ids ...string) (int, error)
	// reads: what can't be read is left.
	reads bool
}

func (p Parked) change(ctx context.Context, id string, change change) (int, error) {
	placement, err := p.Topic.Placement(ctx)
	if err != nil {
		return 0, err
	}
	if id == "" {
		return p.changeAll(ctx, placement, change)
	}
	return p.changeOne(ctx, placement, id, change)
}

// changeOne begins again where the placement changed meanwhile: the task may have
// moved away from all shards that it was looked for in.
func (p Parked) changeOne(ctx context.Context, placement shard.Placement, id string, change change) (int, error) {
	for {
		total := 0
		for _, at := range placement.Where(id) {
			if err := p.unreadable(ctx, at, id, change); err != nil {
				return total, err
			}
			n, err := change.do(p.Topic.Shard(at), ctx, id)
			if total += n; err != nil {
				return total, err
			}
		}
		if total > 0 {
			return total, nil
		}
		now, err := p.Topic.Placement(ctx)
		if err != nil {
			return 0, err
		}
		if now == placement {
			return 0, fmt.Errorf("topic %s, ID %q: not parked: %w", p.Topic.Name(), id, task.ErrNotFound)
		}
		placement = now
	}
}

// unreadable is a *LeftError if a task is parked in a shard, and its record must be read
// for the change and can't be.
func (p Parked) unreadable(ctx context.Context, at int, id string, change change) error {
	if !change.reads {
		return nil
	}
	r, there, err := p.Topic.Shard(at).ParkedTask(ctx, id)
	if err == nil && there && r.Err != nil {
		err = &LeftError{Topic: p.Topic.Name(), Tasks: 1, IDs: []string{id}, reason: r.Err}
	}
	return err
}

// LeftError says which parked tasks were left as they are. It comes beside the number of
// those that were not.
type LeftError struct {
	// Topic of the tasks.
	Topic string
	// Tasks is how many records can't be read, and IDs are the first ten of theirs.
	Tasks int
	IDs   []string
	// Shards names those that can't be read; nil: none.
	Shards *shard.UnreadableError
	reason error // the first record's
}

// leftNamed is how many IDs of tasks that were left are kept.
const leftNamed = 10

func (e *LeftError) Error() string {
	var parts []string
	if e.Tasks > 0 {
		names := make([]string, len(e.IDs))
		for i, id := range e.IDs {
			names[i] = strconv.Quote(shard.ShortID(id))
		}
		text := strings.Join(names, ", ")
		if more := e.Tasks - len(names); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, fmt.Sprintf("topic %s: %d tasks can't be read, and stay parked until they are purged: %s: %v", e.Topic, e.Tasks, text, e.reason))
	}
	if e.Shards != nil {
		parts = append(parts, e.Shards.Error())
	}
	return strings.Join(parts, "; ")
}

// Unwrap is why the first of the shards can't be read; nil if all can.
func (e *LeftError) Unwrap() error {
	if e.Shards == nil {
		return nil
	}
	return e.Shards
}

// readable are the IDs of a page's tasks that can be read; it notes the others.
func (e *LeftError) readable(page []shard.Record) (ids []string) {
	for _, r := range page {
		if r.Err == nil {
			ids = append(ids, r.ID)
			continue
		}
		if e.Tasks++; len(e.IDs) < leftNamed {
			e.IDs = append(e.IDs, r.ID)
		}
		if e.reason == nil {
			e.reason = r.Err
		}
	}
	return ids
}

// walk visits what is parked, page by page, once: shard by shard in the order in which
// tasks may move. The visitor tells whether to go on. Shards that can't be read are left out, and named by an
// *shard.UnreadableError at the end.
func (p Parked) walk(ctx context.Context, placement shard.Placement, visit func(at int, page []shard.Record) (more bool, err error)) error {
	failed := map[int]error{}
	for _, at := range placement.InOrder() {
		cursor := p.Topic.Shard(at).ParkedCursor()
		for {
			page, err := cursor.Next(ctx, parkedPage)
			if len(page) == 0 && err == nil {
				break
			}
			more := true
			if err == nil {
				more, err = visit(at, page)
			}
			if shard.Definite(err) && !shard.Denied(err) {
				failed[at] = err
				break
			}
			if err != nil {
				return err
			}
			if !more {
				return nil
			}
		}
	}
	return p.Topic.LeftOut(placement.Scanned(), failed)
}
