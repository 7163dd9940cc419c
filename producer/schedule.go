package producer

import (
	"context"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

const (
	// scriptTasks and scriptBytes bound one script's share of a ScheduleMany,
	// so that it holds Redis up for about a millisecond.
	scriptTasks = 500
	scriptBytes = 1 << 20
)

// Schedule stores a task, replacing one of the same topic and ID in whatever
// state, and answers its due time by Redis's clock.
//
// Errors: *task.RuleError for input that breaks a rule, task.ErrUnknownTopic,
// task.ErrExists with IfAbsent, task.ErrRedisFull, and Redis's own.
func (c *Client) Schedule(ctx context.Context, r Request) (due time.Time, err error) {
	result := c.ScheduleMany(ctx, []Request{r})[0]
	return result.Due, result.Err
}

// Result is what became of one Request.
type Result struct {
	// Due time by Redis's clock; zero with an error.
	Due time.Time
	// Err as from Schedule.
	Err error
}

// ScheduleMany stores tasks like Schedule, grouped by shard and pipelined: one
// round trip for each 500 or so of them. The results are in the order of the
// requests; each task succeeds or fails alone. Of two requests for the same
// topic and ID the later wins.
func (c *Client) ScheduleMany(ctx context.Context, requests []Request) []Result {
	results := make([]Result, len(requests))
	now, err := c.now(ctx)
	if err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	var good []int
	for i := range requests {
		if results[i].Err = requests[i].check(c.maxPayload, now); results[i].Err == nil {
			good = append(good, i)
		}
	}
	for len(good) > 0 {
		good = c.scheduleRound(ctx, requests, results, good)
	}
	return results
}

type name struct{ topic, id string }

// scheduleRound stores the first request for each task and returns the others:
// within a round the op alone tells whose record a shard holds.
func (c *Client) scheduleRound(ctx context.Context, requests []Request, results []Result, todo []int) (later []int) {
	round := map[string][]item{}
	seen := make(map[name]bool, len(todo))
	for _, i := range todo {
		r := &requests[i]
		if n := (name{r.Topic, r.ID}); len(todo) > 1 {
			if seen[n] {
				later = append(later, i)
				continue
			}
			seen[n] = true
		}
		body := shard.EncodeBody(&task.Task{ContentType: r.ContentType, Headers: r.Headers, Payload: r.Payload})
		round[r.Topic] = append(round[r.Topic], item{r, &results[i], body})
	}
	for topic, items := range round {
		s := scheduling{topic: c.topic(topic), op: shard.NewOp()}
		s.run(ctx, items)
	}
	return later
}

// item is one request on its way to its shard.
type item struct {
	*Request
	result *Result
	body   []byte
}

// scheduling is one topic's share of a round.
type scheduling struct {
	*topic
	op shard.Op
}

// run stores the items, starting over with those that met a newer placement.
func (s *scheduling) run(ctx context.Context, items []item) {
	err := s.retry(ctx, func(p shard.Placement) error {
		var err error
		items, err = s.attempt(ctx, p, items)
		return err
	})
	for _, it := range items {
		it.result.Err = err
	}
}

// attempt stores items under one placement: where they are moving house, their
// old shards see the placement first and lose their copies last. It returns
// those to be stored under a newer one, and why.
func (s *scheduling) attempt(ctx context.Context, p shard.Placement, items []item) ([]item, error) {
	if p.Phase == shard.Migrating {
		var err error
		if items, err = s.beforeSplit(ctx, p, items); err != nil {
			return items, err
		}
	}
	notAfter, err := s.NotAfter(ctx)
	if err != nil {
		return items, err
	}
	groups := group(items, p)
	puts := make([]shard.Put, len(groups))
	for i, g := range groups {
		puts[i] = g.put(p, s.op)
	}
	var again, split []item
	var refusal error
	for i, r := range s.Put(ctx, p, notAfter, puts) {
		switch {
		case s.outdated(r.Err):
			again, refusal = append(again, groups[i].items...), r.Err
		case r.Err != nil:
			fail(groups[i].items, r.Err)
		default:
			split = append(split, groups[i].stored(r.Due, p)...)
		}
	}
	s.afterSplit(ctx, p, split)
	return again, refusal
}

// beforeSplit touches the old shards of items that are moving house. An
// if-absent item whose task lies at the old shard is answered here; the others
// are returned.
func (s *scheduling) beforeSplit(ctx context.Context, p shard.Placement, items []item) ([]item, error) {
	left := items[:0:0]
	absent := map[int][]item{}
	for _, it := range items {
		old := p.Old(it.ID)
		switch {
		case p.Split(it.ID) && it.IfAbsent:
			absent[old] = append(absent[old], it)
			continue
		case p.Split(it.ID):
			if err := s.touch(ctx, old, p); err != nil {
				return items, err
			}
		}
		left = append(left, it)
	}
	for old, asked := range absent {
		for len(asked) > 0 {
			n := min(len(asked), scriptTasks)
			free, err := s.absentAt(ctx, p, old, asked[:n])
			if err != nil {
				return items, err
			}
			left, asked = append(left, free...), asked[n:]
		}
	}
	return left, nil
}

// absentAt answers the if-absent items whose tasks lie at their old shard, and
// returns the others. A record of this very call was put before the change began;
// a mover brings it along.
func (s *scheduling) absentAt(ctx context.Context, p shard.Placement, old int, items []item) (free []item, err error) {
	ids := make([]string, len(items))
	for i, it := range items {
		ids[i] = it.ID
	}
	there, err := s.Touch(ctx, old, p, ids...)
	if err != nil {
		return nil, err
	}
	for i, it := range items {
		switch {
		case there[i] == nil:
			free = append(free, it)
		case there[i].Op == string(s.op):
			*it.result = Result{Due: there[i].Due}
		default:
			*it.result = Result{Err: exists(it.Request)}
		}
	}
	return free, nil
}

// afterSplit removes the old copies of items that are stored in their new
// shards. A shard that has seen a newer placement has none left: a mover of this
// one was done with it.
func (s *scheduling) afterSplit(ctx context.Context, p shard.Placement, items []item) {
	byOld := map[int][]item{}
	for _, it := range items {
		byOld[p.Old(it.ID)] = append(byOld[p.Old(it.ID)], it)
	}
	for old, items := range byOld {
		for len(items) > 0 {
			n := min(len(items), scriptTasks)
			ids := make([]string, n)
			for i, it := range items[:n] {
				ids[i] = it.ID
			}
			if err := s.deleteOld(ctx, old, p, ids...); err != nil {
				fail(items[:n], err)
			}
			items = items[n:]
		}
	}
}

func fail(items []item, err error) {
	for _, it := range items {
		*it.result = Result{Err: err}
	}
}

func exists(r *Request) error {
	return fmt.Errorf("topic %s, ID %q: %w", r.Topic, r.ID, task.ErrExists)
}

// batch is what one script stores.
type batch struct {
	shard  int
	absent bool
	items  []item
	bytes  int
}

// group sorts items by their shard, and cuts the shares to what one script takes.
func group(items []item, p shard.Placement) []*batch {
	type key struct {
		shard  int
		absent bool
	}
	open := map[key]*batch{}
	var all []*batch
	for _, it := range items {
		k := key{p.New(it.ID), it.IfAbsent}
		b := open[k]
		if b == nil || len(b.items) == scriptTasks || b.bytes+len(it.body) > scriptBytes {
			b = &batch{shard: k.shard, absent: k.absent}
			open[k] = b
			all = append(all, b)
		}
		b.items = append(b.items, it)
		b.bytes += len(it.body)
	}
	return all
}

func (b *batch) put(p shard.Placement, op shard.Op) shard.Put {
	put := shard.Put{Shard: b.shard, Op: op, Absent: b.absent, Entries: make([]shard.Entry, len(b.items))}
	for i, it := range b.items {
		put.Entries[i] = shard.Entry{ID: it.ID, When: it.When.when, Split: p.Split(it.ID), Body: it.body}
	}
	return put
}

// stored notes the due times and returns the items whose old copies must go.
func (b *batch) stored(due []int64, p shard.Placement) (split []item) {
	for i, it := range b.items {
		if due[i] == 0 {
			*it.result = Result{Err: exists(it.Request)}
			continue
		}
		*it.result = Result{Due: fromMillis(due[i])}
		if p.Split(it.ID) {
			split = append(split, it)
		}
	}
	return split
}
