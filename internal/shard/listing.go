package shard

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// Wanted selects the tasks that a Listing returns.
type Wanted struct {
	// Prefix of the task's ID.
	Prefix string
	// State of the task; "" means any.
	State task.State
	// From and To bound the due time, both included; zero means no bound. For a waiting
	// task the time of its next attempt counts, for others Record.Due.
	From, To time.Time
	// NoPayloads leaves out the payloads. IDs leaves out all but the IDs; it goes with neither a
	// state nor a due window.
	NoPayloads, IDs bool
}

// scanned is the number of IDs that one step of a scan reads: less than a millisecond of
// Redis.
const scanned = 500

// Listing pages through the tasks of a topic, shard by shard in the order in which tasks
// may move. If the placement changed meanwhile, it visits the shards again. It returns no
// task twice.
//
// It returns each task that stays stored from the first call to the last. With a state or
// a due window, it returns each task whose state and times stay the same. It keeps a page
// in memory, and 8 bytes for each task returned.
type Listing struct {
	topic  *Topic
	wanted Wanted
	// placement is the one being visited, shards are those still to visit, and pages
	// belong to the current shard.
	placement Placement
	shards    []int
	pages     []pager
	// met holds the hashes of the IDs returned.
	seed maphash.Seed
	met  map[uint64]struct{}
}

// pager returns tasks of a shard, page by page. An empty page means the end.
type pager interface {
	Next(ctx context.Context) ([]Stored, error)
}

// Listing returns a Listing of the topic's tasks.
func (t *Topic) Listing(w Wanted) *Listing {
	return &Listing{topic: t, wanted: w, seed: maphash.MakeSeed(), met: map[uint64]struct{}{}}
}

// Next returns more tasks; none means the end. A task whose record can't be read has an
// Err. Errors: task.ErrUnknownTopic, task.ErrUnavailable, or Redis's.
func (l *Listing) Next(ctx context.Context) ([]Stored, error) {
	for {
		if len(l.pages) == 0 {
			if more, err := l.nextShard(ctx); err != nil || !more {
				return nil, luascript.Unasked(err)
			}
		}
		page, err := l.pages[0].Next(ctx)
		if err != nil {
			return nil, luascript.Unasked(err)
		}
		if len(page) == 0 {
			l.pages = l.pages[1:]
		}
		if page = l.asked(page); len(page) > 0 {
			return page, nil
		}
	}
}

// All yields all tasks of Next. An error of Next is the last that it yields.
func (l *Listing) All(ctx context.Context) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		for {
			page, err := l.Next(ctx)
			if err != nil {
				yield(Stored{}, err)
				return
			}
			for _, s := range page {
				if !yield(s, nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
		}
	}
}

// nextShard continues with the next shard. After the last it starts again if the
// placement changed, and returns false otherwise.
func (l *Listing) nextShard(ctx context.Context) (more bool, err error) {
	if len(l.shards) == 0 {
		now, err := l.topic.Placement(ctx)
		if err != nil || now == l.placement {
			return false, l.topic.store.registry.Suggest(ctx, l.topic.name, err)
		}
		l.placement, l.shards = now, now.InOrder()
	}
	at := l.topic.Shard(l.shards[0])
	l.shards = l.shards[1:]
	l.pages = l.pagesOf(at)
	return true, nil
}

// pagesOf returns the pagers of a shard. For a state or a due window they read a range of
// scores. Otherwise one pager scans the shard, which misses no task whose score changes.
func (l *Listing) pagesOf(s Shard) (pages []pager) {
	part := partWhole
	if l.wanted.NoPayloads {
		part = partMeta
	}
	if l.wanted.State == "" && !l.wanted.dated() {
		return []pager{&scan{shard: s, pattern: literal(l.wanted.Prefix) + "*", part: part, ids: l.wanted.IDs}}
	}
	for _, span := range l.wanted.spans() {
		list := s.List(span, l.wanted.Prefix)
		list.part = part
		pages = append(pages, list)
	}
	return pages
}

func (w Wanted) dated() bool { return !w.From.IsZero() || !w.To.IsZero() }

// spans returns the ranges of scores to read. Leased tasks are always included, because a
// task that a mover has is one of them. They come last, because waiting tasks become
// leased ones.
func (w Wanted) spans() (spans []Span) {
	if w.State == "" || w.State == task.Waiting {
		spans = append(spans, SpanOf(task.Waiting).Within(w.From, w.To))
	}
	if w.State == "" || w.State == task.Parked {
		spans = append(spans, SpanOf(task.Parked))
	}
	return append(spans, SpanOf(task.Leased))
}

// asked returns the tasks of a page that are wanted and weren't returned before.
func (l *Listing) asked(page []Stored) []Stored {
	var asked []Stored
	for _, s := range page {
		if !l.wanted.Holds(s) {
			continue
		}
		hash := maphash.String(l.seed, s.ID)
		if _, met := l.met[hash]; !met {
			l.met[hash] = struct{}{}
			asked = append(asked, s)
		}
	}
	return asked
}

// Holds reports whether a task is wanted. A task whose record can't be read has no due
// time, so it is outside every due window.
func (w Wanted) Holds(s Stored) bool {
	if w.State != "" && s.State != w.State || !strings.HasPrefix(s.ID, w.Prefix) {
		return false
	}
	due := s.Due
	if s.State == task.Waiting {
		due = s.Next
	}
	return !w.dated() || !due.IsZero() && !due.Before(w.From) && (w.To.IsZero() || !due.After(w.To))
}

// scan pages through all tasks of a shard, in no order.
type scan struct {
	shard   Shard
	pattern string
	part    part
	ids     bool // nothing is read
	cursor  uint64
	begun   bool
	found   []string // scanned, but not read yet
}

// Next implements pager. It leaves out tasks that were removed or moved after the scan
// found them.
func (s *scan) Next(ctx context.Context) ([]Stored, error) {
	for {
		if len(s.found) == 0 {
			if s.begun && s.cursor == 0 {
				return nil, nil
			}
			if err := s.scan(ctx); err != nil {
				return nil, err
			}
			continue
		}
		page, err := s.read(ctx)
		if err != nil || len(page) > 0 {
			return page, err
		}
	}
}

func (s *scan) scan(ctx context.Context) error {
	ids, cursor, err := s.shard.scan(ctx, s.cursor, s.pattern, scanned)
	if err == nil {
		s.found, s.cursor, s.begun = ids, cursor, true
	}
	return err
}

func (s *scan) read(ctx context.Context) ([]Stored, error) {
	var page []Stored
	if s.ids {
		for _, id := range s.found {
			page = append(page, Stored{Record: Record{Task: task.Task{Topic: s.shard.topic.name, ID: id}}})
		}
		s.found = nil
		return page, nil
	}
	t, ids := s.shard.topic, s.found[:min(len(s.found), listTasks)]
	fetched := t.fetch(ctx, "", s.part, []Names{{s.shard.n, ids}})[0]
	if fetched.Err != nil {
		return nil, fmt.Errorf("list tasks of shard %d of topic %s: %w", s.shard.n, t.name, fetched.Err)
	}
	s.found = s.found[len(fetched.Tasks):]
	for _, read := range fetched.Tasks {
		if read != nil {
			page = append(page, *read)
		}
	}
	return page, nil
}

// literal returns a pattern of Redis that matches text only.
func literal(text string) string {
	var pattern strings.Builder
	for _, b := range []byte(text) {
		if strings.IndexByte(`*?[]^\`, b) >= 0 {
			pattern.WriteByte('\\')
		}
		pattern.WriteByte(b)
	}
	return pattern.String()
}
