package producer

import (
	"context"
	"errors"
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
// task.ErrExists with IfAbsent, task.ErrRedisFull, with Config.MinReplicas
// task.ErrReplicas, beside which the due time is that of what the master has
// stored, and Redis's own.
func (c *Client) Schedule(ctx context.Context, r Request) (due time.Time, err error) {
	result := c.ScheduleMany(ctx, []Request{r})[0]
	return result.Due, result.Err
}

// Result is what became of one Request.
type Result struct {
	// Due time by Redis's clock; zero with an error other than task.ErrReplicas.
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
		s := scheduling{Caller: c.topic(topic), op: shard.NewOp()}
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
	*shard.Caller
	op shard.Op
}

// run stores the items, starting over with those that met a newer placement.
func (s *scheduling) run(ctx context.Context, items []item) {
	err := s.Retry(ctx, func(p shard.Placement) error {
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
		case s.Outdated(r.Err):
			again, refusal = append(again, groups[i].items...), r.Err
		case errors.Is(r.Err, task.ErrReplicas):
			// What a failover may undo must not remove the old copies.
			groups[i].stored(r.Due, p, r.Err)
		case r.Err != nil:
			fail(groups[i].items, r.Err)
		default:
			split = append(split, groups[i].stored(r.Due, p, nil)...)
		}
	}
	s.afterSplit(ctx, p, split)
	return again, refusal
}

// beforeSplit touches the old shards of items that are moving house. An
// if-absent item whose task lies at the old shard is answered here; the others
// are returned.
func (s *scheduling) beforeSplit(ctx context.Context, p shard.Placement, items []item) ([]item, error) {
	var left, asked []item
	var shown []int
	for _, it := range items {
		switch {
		case p.Split(it.ID) && it.IfAbsent:
			asked = append(asked, it)
			continue
		case p.Split(it.ID):
			shown = append(shown, p.Old(it.ID))
		}
		left = append(left, it)
	}
	if err := s.Show(ctx, p, shown...); err != nil {
		return items, err
	}
	free, err := s.absentAtOld(ctx, p, asked)
	if err != nil {
		return items, err
	}
	return append(left, free...), nil
}

// absentAtOld answers the if-absent items whose tasks lie at their old shards,
// and returns the others. A record of this very call was put before the change
// began; a mover brings it along.
func (s *scheduling) absentAtOld(ctx context.Context, p shard.Placement, items []item) (free []item, err error) {
	if len(items) == 0 {
		return nil, nil
	}
	names, groups := atOld(p, items)
	for i, touched := range s.TouchAll(ctx, p, names) {
		if touched.Err != nil {
			err = errors.Join(err, touched.Err)
			continue
		}
		for j, there := range touched.Records {
			it := groups[i][j]
			switch {
			case there == nil:
				free = append(free, it)
			case there.Op == string(s.op):
				*it.result = Result{Due: there.Due}
			default:
				*it.result = Result{Err: exists(it.Request)}
			}
		}
	}
	return free, err
}

// afterSplit removes the old copies of items that are stored in their new
// shards.
func (s *scheduling) afterSplit(ctx context.Context, p shard.Placement, items []item) {
	if len(items) == 0 {
		return
	}
	names, groups := atOld(p, items)
	for i, err := range s.DeleteOld(ctx, p, names...) {
		if err != nil {
			fail(groups[i], err)
		}
	}
}

// atOld sorts items by their old shards, in shares of what one script takes.
func atOld(p shard.Placement, items []item) (names []shard.Names, groups [][]item) {
	open := map[int]int{}
	for _, it := range items {
		old := p.Old(it.ID)
		g, ok := open[old]
		if !ok || len(groups[g]) == scriptTasks {
			g = len(groups)
			open[old] = g
			names, groups = append(names, shard.Names{Shard: old}), append(groups, nil)
		}
		names[g].IDs = append(names[g].IDs, it.ID)
		groups[g] = append(groups[g], it)
	}
	return names, groups
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

// stored notes the due times, and an error beside them, and returns the items whose
// old copies must go.
func (b *batch) stored(due []int64, p shard.Placement, err error) (split []item) {
	for i, it := range b.items {
		if due[i] == 0 {
			*it.result = Result{Err: exists(it.Request)}
			continue
		}
		*it.result = Result{Due: fromMillis(due[i]), Err: err}
		if p.Split(it.ID) {
			split = append(split, it)
		}
	}
	return split
}
