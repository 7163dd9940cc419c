package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Parked gives an operator access to the parked tasks of one topic.
type Parked struct {
	Topic *shard.Topic
	// Progress, if not nil, is called while all tasks are replayed or purged. visited is
	// how many tasks were visited, of about how many there are.
	Progress func(visited, of int64)
	// Filter selects the tasks for Each and for a change of all.
	Filter ParkedFilter
	// Limit is how many tasks a change of all changes at most; 0: no limit.
	Limit int
	// Rate is how many tasks per second a change of all changes at most; 0: no limit.
	Rate int
}

// ParkedFilter selects parked tasks; the zero value selects all.
type ParkedFilter struct {
	// ID of the task; "": any.
	ID string
	// Reason is a part of the reason for parking, in any case; "": any reason.
	Reason string
	// NoReason selects tasks without a reason.
	NoReason bool
	// Before selects tasks parked before that time; zero: any. Tasks whose time of
	// parking is unknown, for example with a damaged record, are not selected.
	Before time.Time
}

// String describes the filter, as in " since before 2026-12-01T10:00:00.000Z"; "" if it
// selects all parked tasks, or one by its ID.
func (f ParkedFilter) String() (text string) {
	if f.Reason != "" {
		text += fmt.Sprintf(" with %q in its reason", f.Reason)
	}
	if f.NoReason {
		text += " without a reason"
	}
	if !f.Before.IsZero() {
		text += " since before " + duetime.Text(f.Before)
	}
	return text
}

// matches reports whether the filter selects a parked task.
func (f ParkedFilter) matches(r shard.Record) bool {
	if f.ID != "" && r.ID != f.ID || f.NoReason && r.Reason != "" {
		return false
	}
	old := f.Before.IsZero() || !r.ReasonAt.IsZero() && r.ReasonAt.Before(f.Before)
	return old && strings.Contains(strings.ToLower(r.Reason), strings.ToLower(f.Reason))
}

// matching returns the tasks of a page that the filter selects.
func (f ParkedFilter) matching(page []shard.Record) []shard.Record {
	return slices.DeleteFunc(page, func(r shard.Record) bool { return !f.matches(r) })
}

// parkedPage is how many parked tasks a call changes at most.
const parkedPage = 500

// Each calls yield with every selected task until yield returns false. It skips shards
// that can't be read, and then returns an *shard.UnreadableError that names them.
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

// EachParked calls yield with every selected parked task of a topic, or of all known
// topics if topic is "", until yield returns false. If a part of one topic can't be read,
// it visits the other topics and then returns the error.
func EachParked(ctx context.Context, store *shard.Store, topic string, filter ParkedFilter,
	yield func(shard.Record) bool) error {
	if topic != "" {
		return Parked{Topic: store.Topic(topic), Filter: filter}.Each(ctx, yield)
	}
	topics, err := store.Registry().Topics(ctx)
	if err != nil {
		return err
	}
	slices.Sort(topics)
	var unread []error
	more := true
	for _, topic := range topics {
		err := EachParked(ctx, store, topic, filter, func(r shard.Record) bool { more = yield(r); return more })
		switch {
		case !more:
			return nil
		case errors.Is(err, task.ErrUnknownTopic): // removed, perhaps only in part
		case shard.Definite(err) && !shard.Denied(err):
			unread = append(unread, err)
		case err != nil:
			return err
		}
	}
	return errors.Join(unread...)
}

// Replay makes one parked task due now, or all that the filter selects if id is "". It
// replays each task at most once, and only tasks that were parked when it reached their
// shard. It returns how many.
//
// If no task has the ID, the error is task.ErrNotFound. Tasks whose records can't be read
// stay parked. A *LeftError names them and the shards that can't be read.
func (p Parked) Replay(ctx context.Context, id string) (int, error) {
	return p.change(ctx, id, change{shard.Shard.Replay, true})
}

// Purge removes one parked task for good, or all that the filter selects if id is "", as
// Replay does. It also removes tasks whose records can't be read.
func (p Parked) Purge(ctx context.Context, id string) (int, error) {
	return p.change(ctx, id, change{shard.Shard.PurgeParked, false})
}

// change is an operation on parked tasks.
type change struct {
	do func(s shard.Shard, ctx context.Context, ids ...string) (int, error)
	// reads is true if tasks whose records can't be read are left alone.
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

// changeOne starts again if the placement changed meanwhile, because the task may have
// moved away from all shards that were searched.
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

// unreadable returns a *LeftError if the task is parked in the shard, and the change
// needs its record, and the record can't be read.
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

// LeftError says which parked tasks were left as they are. It comes with the number of
// tasks that were changed.
type LeftError struct {
	// Topic of the tasks.
	Topic string
	// Tasks is how many records can't be read, and IDs holds the first ten of their IDs.
	Tasks int
	IDs   []string
	// Shards names the shards that can't be read; nil: none.
	Shards *shard.UnreadableError
	reason error // the first record's
}

// leftNamed is how many IDs a LeftError names.
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
		parts = append(parts, fmt.Sprintf("topic %s: %d tasks can't be read, and stay parked until they are purged: %s: %v",
			e.Topic, e.Tasks, text, e.reason))
	}
	if e.Shards != nil {
		parts = append(parts, e.Shards.Error())
	}
	return strings.Join(parts, "; ")
}

// Unwrap returns the error about unreadable shards; nil if there is none.
func (e *LeftError) Unwrap() error {
	if e.Shards == nil {
		return nil
	}
	return e.Shards
}

// readable returns the IDs of a page's readable tasks. It records the others in e.
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

// walk visits each parked task once, page by page. It goes through the shards in the
// order in which tasks may move. The visitor returns whether to go on. walk skips shards
// that can't be read, and then returns an *shard.UnreadableError that names them.
func (p Parked) walk(ctx context.Context, placement shard.Placement, visit func(at int, page []shard.Record) (more bool,
	err error)) error {
	failed := map[int]error{}
	for _, at := range placement.InOrder() {
		list := p.Topic.Shard(at).Parked()
		for {
			tasks, err := list.Next(ctx)
			if len(tasks) == 0 && err == nil {
				break
			}
			page := make([]shard.Record, len(tasks))
			for i, t := range tasks {
				page[i] = t.Record
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
