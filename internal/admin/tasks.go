package admin

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Retrying is the state of a task that waits for another attempt: the broker returned or
// refused it, or its consumer failed. It is a state of listings only. A task that waits
// for its first attempt is task.Waiting.
const Retrying task.State = "retrying"

// Listed is a stored task in a listing, without payload, content type and headers. It has
// AMQP, Recurrence and Series only if Tasks.Details is set. State may be Retrying.
type Listed struct{ shard.Stored }

func newListed(s shard.Stored) Listed {
	if s.State == task.Waiting && s.Err == nil && (s.Attempt > 1 || s.Next.After(s.Due)) {
		s.State = Retrying
	}
	return Listed{s}
}

// Tasks selects stored tasks of one topic.
type Tasks struct {
	Topic *shard.Topic
	// State selects tasks in that state; "": any.
	State task.State
	// DueAfter and DueBefore bound the due time, both included; zero: no bound. For a
	// retry the original due time counts.
	DueAfter, DueBefore time.Time
	// Prefix selects IDs that begin with it.
	Prefix string
	// Group selects the tasks of a group, by its index. The shards aren't read.
	Group string
	// Limit, if positive, is the largest number of tasks listed. Tasks that are tried or
	// given back first come first, parked tasks last.
	Limit int
	// Details reads the rules of recurring tasks, and the messages of tasks that came through
	// an intake, without payloads.
	Details bool
}

// Each calls yield with every selected task until yield returns false. With a Limit the
// tasks come in the order of their next attempt, else shard by shard. A task that keeps
// its state is listed once, even while the shard count changes. A task that is claimed,
// retried or rescheduled meanwhile is listed at most once.
//
// Each holds a page, or Limit, of tasks in memory, and 8 bytes for each task it met. It
// skips shards that can't be read, and then returns an *shard.UnreadableError that names
// them. For an unknown topic the error is task.ErrUnknownTopic.
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

// walk starts again if the placement changed meanwhile. So it finds tasks that moved to a
// new shard or to one already visited.
func (t Tasks) walk(ctx context.Context, yield func(Listed) bool) error {
	if t.Group != "" {
		return t.walkGroup(ctx, yield)
	}
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

// walkGroup calls yield with the selected tasks of a group.
func (t Tasks) walkGroup(ctx context.Context, yield func(Listed) bool) error {
	group := router.New(t.Topic.Store()).Topic(t.Topic.Name()).Group(t.Group)
	for {
		page, err := group.Next(ctx)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, s := range page {
			s.ContentType, s.Headers, s.Payload = "", nil, nil
			if l := newListed(s); t.asked(l) && !yield(l) {
				return nil
			}
		}
	}
}

// spans returns the parts of a shard to read, each in the order of the next attempt. The
// leased tasks are always read, because a mover's tasks are among them. They are read
// last, because waiting tasks become leased.
func (t Tasks) spans() (spans []shard.Span) {
	waiting := shard.SpanOf(task.Waiting)
	switch t.State {
	case task.Leased:
	case task.Parked:
		spans = append(spans, shard.SpanOf(task.Parked))
	case task.Waiting: // each is at its due time
		spans = append(spans, waiting.Within(t.DueAfter, t.DueBefore))
	case Retrying:
		spans = append(spans, waiting.Within(t.DueAfter, t.lastAttempt()))
	default:
		spans = append(spans, waiting.Within(t.DueAfter, t.lastAttempt()), shard.SpanOf(task.Parked))
	}
	return append(spans, shard.SpanOf(task.Leased))
}

// retryWithin is more than the longest wait before a scanner's retry: 24 hours, the limit of the
// setting backoff.max. Clocks may differ by the rest.
const retryWithin = 25 * time.Hour

// lastAttempt returns the latest time at which a selected task may be tried, or the zero time if
// there is no bound. A first attempt is at its due time. A scanner's retry is at most retryWithin
// from now. A consumer's retry has another due time.
func (t Tasks) lastAttempt() time.Time {
	if t.DueBefore.IsZero() {
		return time.Time{}
	}
	if soon := time.Now().Add(retryWithin); soon.After(t.DueBefore) {
		return soon
	}
	return t.DueBefore
}

// asked reports whether a task is selected. If its record can't be read, its due time is
// unknown.
func (t Tasks) asked(l Listed) bool {
	if t.State != "" && l.State != t.State || !strings.HasPrefix(l.ID, t.Prefix) {
		return false
	}
	if t.DueAfter.IsZero() && t.DueBefore.IsZero() {
		return true
	}
	return !l.Due.IsZero() && !l.Due.Before(t.DueAfter) && (t.DueBefore.IsZero() || !l.Due.After(t.DueBefore))
}

// walk is one listing in progress.
type walk struct {
	Tasks
	yield func(Listed) bool
	ended bool // yield wants no more
	// met holds the hashes of the listed IDs, because a task that moved may be found
	// twice.
	seed maphash.Seed
	met  map[uint64]struct{}
}

// through visits all shards of a placement, in the order in which tasks may move.
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

// span visits the tasks of a span. With a limit the first tasks are enough, except among
// the leased ones, which are in another order.
func (w *walk) span(ctx context.Context, at int, span shard.Span) error {
	found, list := 0, w.list(at, span)
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

// list returns the list of a span's tasks.
func (w *walk) list(at int, span shard.Span) *shard.List {
	list := w.Topic.Shard(at).List(span, w.Prefix)
	if w.Details {
		list.ReadMessages()
	}
	return list
}

// first reports whether a task is met for the first time.
func (w *walk) first(id string) bool {
	hash := maphash.String(w.seed, id)
	_, met := w.met[hash]
	w.met[hash] = struct{}{}
	return !met
}

// firstTasks keeps the tasks that are tried or given back first.
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

// listChunk is how many tasks beyond twice the limit are collected before they are sorted
// and cut. So a small limit doesn't cost one sort per task.
const listChunk = 1000

// sorted returns the first tasks in order.
func (f *firstTasks) sorted() []Listed {
	slices.SortFunc(f.tasks, func(a, b Listed) int {
		if a.Next.IsZero() != b.Next.IsZero() { // parked tasks have no next attempt, and come last
			return b.Next.Compare(a.Next)
		}
		return cmp.Or(a.Next.Compare(b.Next), strings.Compare(a.ID, b.ID))
	})
	return f.tasks[:min(len(f.tasks), f.limit)]
}
