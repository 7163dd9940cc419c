package shard

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"github.com/duefleet/duefleet/task"
)

// Wanted is which tasks a Listing returns.
type Wanted struct {
	// Prefix of their IDs.
	Prefix string
	// State they are in; "": any.
	State task.State
	// From and To bound when they are due, both included; zero: no bound. Those that wait
	// count by when they are due next, the others by Record.Due.
	From, To time.Time
	// NoPayloads leaves the payloads out.
	NoPayloads bool
}

// Listing walks once through the tasks of a topic, shard by shard in the order in which
// tasks may move, and again where the placement changed meanwhile. It returns no task
// twice. It returns each task that stays stored from the first call to the last; with a
// state or a due window each whose state and times stay as they are. It holds a page in
// memory, and 8 bytes for each task returned.
type Listing struct {
	topic  *Topic
	wanted Wanted
	// placement is the one that is walked through, shards are those still to visit, and
	// pages those of the shard that is visited.
	placement Placement
	shards    []int
	pages     []pager
	// met are the hashes of the IDs returned.
	seed maphash.Seed
	met  map[uint64]struct{}
}

// pager returns tasks of a shard, page by page; none: there are no more.
type pager interface {
	Next(ctx context.Context) ([]Stored, error)
}

// Listing returns a walk in front of the topic's tasks.
func (t *Topic) Listing(w Wanted) *Listing {
	return &Listing{topic: t, wanted: w, seed: maphash.MakeSeed(), met: map[uint64]struct{}{}}
}

// Next returns more tasks; none: it is over. One whose record can't be read has an Err. An
// unknown topic is task.ErrUnknownTopic.
func (l *Listing) Next(ctx context.Context) ([]Stored, error) {
	for {
		if len(l.pages) == 0 {
			if more, err := l.nextShard(ctx); err != nil || !more {
				return nil, Unasked(err)
			}
		}
		page, err := l.pages[0].Next(ctx)
		if err != nil {
			return nil, Unasked(err)
		}
		if len(page) == 0 {
			l.pages = l.pages[1:]
		}
		if page = l.asked(page); len(page) > 0 {
			return page, nil
		}
	}
}

// nextShard goes on to the next shard, or begins again where the placement changed. It
// reports false at the end.
func (l *Listing) nextShard(ctx context.Context) (more bool, err error) {
	if len(l.shards) == 0 {
		now, err := l.topic.Placement(ctx)
		if err != nil || now == l.placement {
			return false, l.topic.meant(ctx, err)
		}
		l.placement, l.shards = now, now.InOrder()
	}
	at := l.topic.Shard(l.shards[0])
	l.shards = l.shards[1:]
	l.pages = l.pagesOf(at)
	return true, nil
}

// pagesOf are those of a shard. The order of the scores leads to a state or a due time.
// Without either the shard is scanned, which misses no task whose score changes.
func (l *Listing) pagesOf(s Shard) (pages []pager) {
	part := partWhole
	if l.wanted.NoPayloads {
		part = partMeta
	}
	if l.wanted.State == "" && !l.wanted.dated() {
		return []pager{&scan{shard: s, pattern: literal(l.wanted.Prefix) + "*", part: part}}
	}
	for _, span := range l.wanted.spans() {
		list := s.List(span, l.wanted.Prefix)
		list.part = part
		pages = append(pages, list)
	}
	return pages
}

func (w Wanted) dated() bool { return !w.From.IsZero() || !w.To.IsZero() }

// spans are where in a shard the tasks lie. What a mover has is among the leased: these are
// always looked at, and last, as waiting tasks become leased ones.
func (w Wanted) spans() (spans []Span) {
	if w.State == "" || w.State == task.Waiting {
		spans = append(spans, SpanOf(task.Waiting).Within(w.From, w.To))
	}
	if w.State == "" || w.State == task.Parked {
		spans = append(spans, SpanOf(task.Parked))
	}
	return append(spans, SpanOf(task.Leased))
}

// asked are those of a page that are wanted, and were not returned before.
func (l *Listing) asked(page []Stored) []Stored {
	var asked []Stored
	for _, s := range page {
		if !l.wanted.holds(s) {
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

// holds reports whether a task is wanted. Of one whose record can't be read nobody knows
// when it was due.
func (w Wanted) holds(s Stored) bool {
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
	cursor  uint64
	begun   bool
	ids     []string // scanned, and not read yet
}

// Next implements pager. Tasks that are gone, or were moved on, since they were scanned are
// left out.
func (s *scan) Next(ctx context.Context) ([]Stored, error) {
	for {
		if len(s.ids) == 0 {
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
	t := s.shard.topic
	pairs, cursor, err := t.rdb.ZScan(ctx, s.shard.due(), s.cursor, s.pattern, scanned).Result()
	if err != nil {
		return fmt.Errorf("scan shard %d of topic %s: %w", s.shard.n, t.name, err)
	}
	s.cursor, s.begun = cursor, true
	for i := 0; i+1 < len(pairs); i += 2 { // scores are between them
		s.ids = append(s.ids, pairs[i])
	}
	return nil
}

func (s *scan) read(ctx context.Context) ([]Stored, error) {
	t, ids := s.shard.topic, s.ids[:min(len(s.ids), listTasks)]
	tasks, err := t.fetched(t.run(ctx, s.shard.fetchCall("", s.part, ids)), s.part, ids)
	if err != nil {
		return nil, fmt.Errorf("list tasks of shard %d of topic %s: %w", s.shard.n, t.name, err)
	}
	s.ids = s.ids[len(tasks):]
	var page []Stored
	for _, read := range tasks {
		if read != nil {
			page = append(page, *read)
		}
	}
	return page, nil
}
