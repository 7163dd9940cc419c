package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

const (
	// fetchIDs and fetchBytes limit what one script reads. The bytes are bytes of
	// records; the record that reaches the limit is the last.
	fetchIDs   = 500
	fetchBytes = 1 << 20
	// fetchAtOnce is how many scripts are sent in one round trip.
	fetchAtOnce = 4
)

// Got is the result for one ID.
type Got struct {
	Task Stored
	// Err is task.ErrNotFound, the reason why the record can't be read, or an error of
	// Redis.
	Err error
}

// GetMany reads tasks as Get does, with one round trip for each 2000 IDs, or more if the
// tasks are large. The results are in the order of the IDs. A task that is exported to a
// mover has its state from before. If Redis can't be reached, GetMany doesn't ask for the
// remaining tasks.
func (r *Router) GetMany(ctx context.Context, ids []string) []Got {
	g := getting{Router: r, ids: ids, results: make([]Got, len(ids))}
	todo := make([]int, len(ids))
	for i := range todo {
		todo[i] = i
	}
	err := r.retry(ctx, func(p Placement) (refusal error) {
		todo, refusal = g.attempt(ctx, p, todo)
		return refusal
	})
	g.fail(todo, err)
	for i := range g.results {
		g.results[i].Err = Unasked(g.results[i].Err)
	}
	return g.results
}

// getting is a running GetMany. Tasks are named by their indexes.
type getting struct {
	*Router
	ids     []string
	results []Got
}

// attempt reads tasks under one placement: moving tasks at their old shards first, then
// at the new shards all that it hasn't found. It returns the tasks to read again under a
// newer placement, and the refusal.
func (g *getting) attempt(ctx context.Context, p Placement, todo []int) (again []int, refusal error) {
	var moving, rest []int
	for _, i := range todo {
		if p.Moving(g.ids[i]) {
			moving = append(moving, i)
		} else {
			rest = append(rest, i)
		}
	}
	again, refusal = g.read(ctx, p, moving, Placement.Old)
	refused := setOf(again)
	for _, i := range moving {
		if !refused[i] && errors.Is(g.results[i].Err, task.ErrNotFound) {
			rest = append(rest, i)
		}
	}
	more, err := g.read(ctx, p, rest, Placement.New)
	if err != nil {
		refusal = err
	}
	return append(again, more...), refusal
}

// read reads each task from one shard.
func (g *getting) read(ctx context.Context, p Placement, todo []int, of shardOf) (again []int, refusal error) {
	var unasked error
	for queue := g.share(p, todo, of); len(queue) > 0; {
		round := queue[:min(len(queue), fetchAtOnce)]
		queue = queue[len(round):]
		if unasked != nil {
			for _, sh := range round {
				g.fail(sh.entries, unasked)
			}
			continue
		}
		calls := make([]call, len(round))
		for n, sh := range round {
			calls[n] = g.Shard(sh.shard).fetchCall(p.String(), partWhole, g.names(sh.entries))
		}
		for n, cmd := range g.runAll(ctx, calls) {
			sh := round[n]
			done, err := g.take(sh, cmd)
			switch {
			case g.outdated(err):
				again, refusal = append(again, sh.entries...), err
			case err != nil:
				err = Unasked(fmt.Errorf("read from shard %d of topic %s: %w", sh.shard, g.name, err))
				if g.fail(sh.entries, err); errors.Is(err, task.ErrUnavailable) {
					unasked = err
				}
			case done < len(sh.entries):
				queue = append(queue, &share{shard: sh.shard, entries: sh.entries[done:]})
			}
		}
	}
	return again, refusal
}

// share groups tasks by shard, in shares of at most fetchIDs tasks.
func (g *getting) share(p Placement, todo []int, of shardOf) []*share {
	open := map[int]*share{}
	var all []*share
	for _, i := range todo {
		at := of(p, g.ids[i])
		sh := open[at]
		if sh == nil || len(sh.entries) == fetchIDs {
			sh = &share{shard: at}
			open[at] = sh
			all = append(all, sh)
		}
		sh.entries = append(sh.entries, i)
	}
	return all
}

func (g *getting) names(of []int) []string {
	ids := make([]string, len(of))
	for j, i := range of {
		ids[j] = g.ids[i]
	}
	return ids
}

// take records the reply of a script. It returns how many tasks of the share the reply
// covers.
func (g *getting) take(sh *share, cmd *redis.Cmd) (done int, err error) {
	tasks, err := g.fetched(cmd, partWhole, g.names(sh.entries))
	for j, s := range tasks {
		r := &g.results[sh.entries[j]]
		switch {
		case s == nil:
			*r = Got{Err: task.ErrNotFound}
		case s.Err != nil:
			*r = Got{Err: fmt.Errorf("read task %q: %w", s.ID, s.Err)}
		default:
			*r = Got{Task: *s}
		}
	}
	return len(tasks), err
}

func (g *getting) fail(of []int, err error) {
	for _, i := range of {
		g.results[i] = Got{Err: err}
	}
}

// fetchCall reads tasks under a placement. With "" the script doesn't check the shard's
// placement.
func (s Shard) fetchCall(placement string, p part, ids []string) call {
	args := make([]any, 3, 3+len(ids))
	args[0], args[1], args[2] = placement, fetchBytes, int(p)
	return call{script: "fetch", keys: []string{s.due(), s.tasks(), s.fence()}, args: append(args, anys(ids)...)}
}

// fetched decodes the reply of the script fetch: the first tasks, at least one, with nil
// for a task that isn't there.
func (t *Topic) fetched(cmd *redis.Cmd, p part, ids []string) ([]*Stored, error) {
	_, rest, err := answer(cmd)
	if err != nil {
		return nil, err
	}
	if n := len(rest) - 1; n < 3 || n%3 != 0 || n/3 > len(ids) {
		return nil, fmt.Errorf("script fetch answered %d values for %d tasks", len(rest), len(ids))
	}
	now, _ := rest[0].(int64)
	tasks := make([]*Stored, 0, len(ids))
	for r := rest[1:]; len(r) > 0; r = r[3:] {
		if r[0] == nil && r[1] == nil {
			tasks = append(tasks, nil)
			continue
		}
		left, _ := r[2].(int64)
		s := t.listed(p, now, ids[len(tasks)], r[0], r[1], int(left))
		if r[0] == nil {
			s.Err = errors.New("it has a record and no score")
		}
		tasks = append(tasks, &s)
	}
	return tasks, nil
}
