package router

import (
	"context"
	"errors"
	"fmt"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// fetchAtOnce is how many scripts GetMany sends in one round trip.
const fetchAtOnce = 4

// Get reads a task, or returns task.ErrNotFound. It reads at the old shard, then at the
// new one.
func (r *Router) Get(ctx context.Context, id string) (s shard.Stored, err error) {
	t := tries{router: r}
	for t.next(ctx) {
		for _, at := range t.placement.Where(id) {
			if s, t.err = r.topic.Shard(at).Read(ctx, t.placement, id); !errors.Is(t.err, task.ErrNotFound) {
				break
			}
		}
	}
	return s, luascript.Unasked(t.err)
}

// Got is the result for one ID.
type Got struct {
	// Task has an Err of its own if its record can't be read.
	Task shard.Stored
	// Err is task.ErrNotFound, the reason why the record can't be read, or an error of
	// Redis.
	Err error
}

// GetMany reads tasks as Get does, with one round trip for each 2000 IDs, or more if the
// tasks are large. The results are in the order of the IDs. A task that is exported to a
// mover has its state from before. If Redis can't be reached, GetMany doesn't ask for the
// remaining tasks.
func (r *Router) GetMany(ctx context.Context, ids []string) []Got {
	return r.getMany(ctx, ids, r.topic.Fetch)
}

func (r *Router) getMany(ctx context.Context, ids []string, fetch fetch) []Got {
	g := getting{router: r, ids: ids, fetch: fetch, results: make([]Got, len(ids))}
	todo := upTo(len(ids))
	t := tries{router: r}
	for t.next(ctx) {
		todo, t.err = g.attempt(ctx, t.placement, todo)
	}
	g.fail(todo, t.err)
	for i := range g.results {
		g.results[i].Err = luascript.Unasked(g.results[i].Err)
	}
	return g.results
}

// getting is a running GetMany. Tasks are named by their indexes.
type getting struct {
	router  *Router
	ids     []string
	fetch   fetch
	results []Got
}

// fetch is Topic.Fetch or Topic.FetchHeads.
type fetch func(ctx context.Context, p shard.Placement, batches []shard.Names) []shard.Fetched

// attempt reads tasks under one placement: moving tasks at their old shards first, then
// at the new shards all that it hasn't found. It returns the tasks to read again under a
// newer placement, and the refusal.
func (g *getting) attempt(ctx context.Context, p shard.Placement, todo []int) (again []int, refusal error) {
	var moving, rest []int
	for _, i := range todo {
		if p.Moving(g.ids[i]) {
			moving = append(moving, i)
		} else {
			rest = append(rest, i)
		}
	}
	again, refusal = g.read(ctx, p, moving, shard.Placement.Old)
	for _, i := range without(moving, again) {
		if errors.Is(g.results[i].Err, task.ErrNotFound) {
			rest = append(rest, i)
		}
	}
	more, err := g.read(ctx, p, rest, shard.Placement.New)
	if err != nil {
		refusal = err
	}
	return append(again, more...), refusal
}

// read reads each task from one shard.
func (g *getting) read(ctx context.Context, p shard.Placement, todo []int, of shardOf) (again []int, refusal error) {
	idOf := func(i int) string { return g.ids[i] }
	queue := group(todo, shard.FetchIDs, func(i int) batchKey { return batchKey{shard: of(p, g.ids[i])} },
		func(int) int { return 0 })
	for len(queue) > 0 {
		round := queue[:min(len(queue), fetchAtOnce)]
		queue = queue[len(round):]
		var unasked error
		for n, fetched := range g.fetch(ctx, p, namesOf(round, idOf)) {
			b, err := round[n], fetched.Err
			switch {
			case outdated(err):
				again, refusal = append(again, b.entries...), err
			case err != nil:
				err = luascript.Unasked(fmt.Errorf("read from shard %d of topic %s: %w", b.key.shard, g.router.topic.Name(), err))
				if g.fail(b.entries, err); errors.Is(err, task.ErrUnavailable) {
					unasked = err
				}
			default:
				if done := g.record(b, fetched.Tasks); done < len(b.entries) {
					queue = append(queue, &batch{key: b.key, entries: b.entries[done:]})
				}
			}
		}
		if unasked != nil {
			for _, b := range queue {
				g.fail(b.entries, unasked)
			}
			break
		}
	}
	return again, refusal
}

// record notes the tasks that a script read. It returns how many these are.
func (g *getting) record(b *batch, tasks []*shard.Stored) (done int) {
	for j, s := range tasks {
		r := &g.results[b.entries[j]]
		switch {
		case s == nil:
			*r = Got{Err: task.ErrNotFound}
		case s.Err != nil:
			*r = Got{Task: *s, Err: fmt.Errorf("read task %q: %w", s.ID, s.Err)}
		default:
			*r = Got{Task: *s}
		}
	}
	return len(tasks)
}

func (g *getting) fail(of []int, err error) {
	for _, i := range of {
		g.results[i] = Got{Err: err}
	}
}
