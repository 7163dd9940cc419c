package operate

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Retrying is, beside those of package task, the state of a task that waits for another
// attempt: the broker returned or refused it, or its consumer failed. One that waits for
// its first is task.Waiting.
const Retrying task.State = "retrying"

// Listed is a stored task as a listing shows it: without content type, headers and
// payload. State may be Retrying.
type Listed struct{ shard.Stored }

func newListed(s shard.Stored) Listed {
	if s.State == task.Waiting && s.Err == nil && (s.Attempt > 1 || s.Next.After(s.Due)) {
		s.State = Retrying
	}
	return Listed{s}
}

// Tasks are the stored tasks of one topic that are asked for.
type Tasks struct {
	Topic *shard.Topic
	// State they are in; "": any.
	State task.State
	// DueAfter and DueBefore bound when they are due, both included; zero: no bound. Of a
	// task that is tried again that is when it was due at first.
	DueAfter, DueBefore time.Time
	// Prefix of their IDs.
	Prefix string
	// Limit, if it is positive, is to how many of them the list is cut: those that are
	// tried or given back first, parked ones last.
	Limit int
}

// Each calls yield with every task asked for until it returns false: with a Limit in the
// order in which they are tried next, else shard by shard. A task whose state stays is
// met once, also while the shard count changes; one that is claimed, retried or
// rescheduled meanwhile once at most. It holds a page, or Limit, of tasks in memory, and
// 8 bytes for each that it met. Shards that can't be read are left out, and named by an
// *shard.UnreadableError at the end. An unknown topic is task.ErrUnknownTopic.
func (t Tasks) Each(ctx context.Context, yield func(Listed) bool) error {
	if t.Limit <= 0 {
		return t.walk(ctx, yield)
	}
	first := firstTasks{limit: t.Limit}
	err := t.walk(ctx, first.add)
	if err != nil && shard.Unreadable(err) == nil {
		return err
	}
	for _, l := range first.sorted() {
		if !yield(l) {
			break
		}
	}
	return err
}

// walk begins again where the placement changed meanwhile: what moved to a shard that
// was not there, or was passed already, is met then.
func (t Tasks) walk(ctx context.Context, yield func(Listed) bool) error {
	placement, err := t.Topic.Placement(ctx)
	if err != nil {
		return err
	}
	w := walk{Tasks: t, yield: yield, seed: maphash.MakeSeed(), met: map[uint64]struct{}{}}
	for {
		left := w.through(ctx, placement)
		if w.ended || left != nil && shard.Unreadable(left) == nil {
			return left
		}
		now, err := t.Topic.Placement(ctx)
		if err != nil {
			return err
		}
		if now == placement {
			return left
		}
		placement = now
	}
}

// spans are where in a shard the tasks lie, each in the order in which they are tried.
// What a mover has is among the leased: so these are always looked at, and last, as
// waiting tasks become leased ones.
func (t Tasks) spans() (spans []shard.Span) {
	waiting := shard.SpanOf(task.Waiting)
	switch t.State {
	case task.Leased:
	case task.Parked:
		spans = append(spans, shard.SpanOf(task.Parked))
	case task.Waiting: // each at the time when it is due
		spans = append(spans, waiting.Within(t.DueAfter, t.DueBefore))
	case Retrying: // none before it was due
		spans = append(spans, waiting.Within(t.DueAfter, time.Time{}))
	default:
		spans = append(spans, waiting.Within(t.DueAfter, time.Time{}), shard.SpanOf(task.Parked))
	}
	return append(spans, shard.SpanOf(task.Leased))
}

// asked reports whether a task is one of those that are asked for. Of one whose record
// can't be read nobody knows when it was due.
func (t Tasks) asked(l Listed) bool {
	if t.State != "" && l.State != t.State || !strings.HasPrefix(l.ID, t.Prefix) {
		return false
	}
	if t.DueAfter.IsZero() && t.DueBefore.IsZero() {
		return true
	}
	return !l.Due.IsZero() && !l.Due.Before(t.DueAfter) && (t.DueBefore.IsZero() || !l.Due.After(t.DueBefore))
}

// walk is one listing under way.
type walk struct {
	Tasks
	yield func(Listed) bool
	ended bool // yield wants no more
	// met are the hashes of the IDs yielded: a task that moved may be found twice.
	seed maphash.Seed
	met  map[uint64]struct{}
}

// through visits all shards of a placement in the order in which tasks may move.
func (w *walk) through(ctx context.Context, placement shard.Placement) error {
	failed := map[int]error{}
	for _, at := range placement.InOrder() {
		err := w.shard(ctx, at)
		if shard.Definite(err) && !shard.Denied(err) {
			failed[at], err = err, nil
		}
		if err != nil || w.ended {
			return err
		}
	}
	return w.Topic.LeftOut(placement.Scanned(), failed)
}

func (w *walk) shard(ctx context.Context, at int) error {
	for _, span := range w.spans() {
		if err := w.span(ctx, at, span); err != nil || w.ended {
			return err
		}
	}
	return nil
}

// span visits the tasks of a span. With a limit the first ones are enough, unless it
// is the leased ones, whose order is another.
func (w *walk) span(ctx context.Context, at int, span shard.Span) error {
	found, list := 0, w.Topic.Shard(at).List(span, w.Prefix)
	for {
		page, err := list.Next(ctx)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, s := range page {
			l := newListed(s)
			if !w.asked(l) {
				continue
			}
			if w.first(l.ID) && !w.yield(l) {
				w.ended = true
				return nil
			}
			if found++; w.Limit > 0 && found == w.Limit && span != shard.SpanOf(task.Leased) {
				return nil
			}
		}
	}
}

// first reports whether a task is met for the first time.
func (w *walk) first(id string) bool {
	hash := maphash.String(w.seed, id)
	_, met := w.met[hash]
	w.met[hash] = struct{}{}
	return !met
}

// firstTasks keeps those tasks that are tried or given back first.
type firstTasks struct {
	limit int
	tasks []Listed
}

func (f *firstTasks) add(l Listed) bool {
	f.tasks = append(f.tasks, l)
	if len(f.tasks) >= 2*f.limit+listChunk {
		f.tasks = f.sorted()
	}
	return true
}

// listChunk is how many tasks more than twice the limit are gathered before they are
// sorted and cut, so that a small limit costs no sorting a task.
const listChunk = 1000

// sorted are the first ones, in their order.
func (f *firstTasks) sorted() []Listed {
	slices.SortFunc(f.tasks, func(a, b Listed) int {
		if a.Next.IsZero() != b.Next.IsZero() {
			if a.Next.IsZero() {
				return 1
			}
			return -1
		}
		if n := a.Next.Compare(b.Next); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	})
	return f.tasks[:min(len(f.tasks), f.limit)]
}
