package router

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// TestMovesGoOnAfterTheFirstScript, which moved only the first task. Its reply is lost, if
// it isn't answered. That task is moved again only if it is another version by then.
func TestMovesGoOnAfterTheFirstScript(t *testing.T) {
	t.Parallel()
	const first = "there"
	ids := []string{first, "other", "third"}
	type errs [3]error // of the tasks
	none, changed, superseded := task.ErrNotFound, shard.ErrChanged, shard.ErrSuperseded
	for name, row := range map[string]struct {
		between           func(c *sandbox)
		rescheduled, kept errs
		replaced          bool
		answered          bool
	}{
		"nothing":                  {between: func(*sandbox) {}},
		"a change of M":            {between: func(c *sandbox) { c.begin(50); c.fence() }},
		"a change of M, an answer": {between: func(c *sandbox) { c.begin(50); c.fence() }, answered: true},
		"a mover's visit":          {between: func(c *sandbox) { c.begin(50); c.fence(); c.move(first) }},
		"a later term": {func(c *sandbox) {
			check.OK(c.t, c.term().Schedule(c.t.Context(), []shard.Entry{entry("another", task.In(time.Hour))})[0].Err)
		}, errs{nil, superseded, superseded}, errs{nil, superseded, superseded}, false, false},
		"a put": {func(c *sandbox) { c.put(task.In(5*time.Hour), ids...) }, errs{}, errs{changed, changed, changed},
			true, false},
		"a cancel": {func(c *sandbox) { c.delete(first) }, errs{none}, errs{none}, true, false},
	} {
		for verb, want := range map[string]errs{"reschedule": row.rescheduled, "retime": row.kept} {
			t.Run(fmt.Sprintf("%s, %s meanwhile", verb, name), func(t *testing.T) {
				t.Parallel()
				c := newSandbox(t, 1)
				c.put(task.In(time.Hour), ids...)
				r := c.term()
				check.OK(c.t, c.schedules(r, c.p)) // the shard has seen the term
				do := c.movesOf(r, verb, ids)
				var moved int64
				c.watchMoves(verb, func(ctx context.Context, request faults.Request) error {
					if moved > 0 {
						return request.Send(ctx)
					}
					request.Commands[0].Args()[12] = 1 // byte: the first task reaches the limit
					check.OK(c.t, request.Send(ctx))
					moved = int64(c.rdb.ZScore(ctx, c.key("due", 0), first).Val())
					if row.between(c); row.answered {
						return nil
					}
					return request.Fail(faults.ErrLost)
				})
				for i, got := range do() {
					id := ids[i]
					if !errors.Is(got.Err, want[i]) {
						t.Errorf("task %s: %v, want %v", id, got.Err, want[i])
					}
					if want[i] != nil {
						continue
					}
					check.OK(c.t, got.Err)
					s, err := r.Get(c.t.Context(), id)
					check.OK(c.t, err)
					check.Equal(t, "due of "+id, s.Due.UnixMilli(), got.Due)
					if id == first && !row.replaced {
						check.Equal(t, "due since the first script", got.Due, moved)
					}
				}
			})
		}
	}
}

// movesOf returns the function that moves tasks of shard 0 to in 2 hours, by one call.
func (c *sandbox) movesOf(r *Router, verb string, ids []string) func() []Scheduled {
	c.t.Helper()
	var moves []Move
	var retimes []Retime
	for _, id := range ids {
		m := Move{id, task.In(2 * time.Hour)}
		moves = append(moves, m)
		if verb == "retime" {
			retimes = append(retimes, Retime{ID: id, When: m.When, Op: shard.NewOp(),
				Retiming: shard.Retiming{Seen: c.read(id).Version()}})
		}
	}
	if verb == "retime" {
		return func() []Scheduled { return r.RetimeMany(c.t.Context(), retimes, task.DefaultMaxPayload) }
	}
	return func() []Scheduled { return r.reschedule(c.t.Context(), moves) }
}

// watchMoves calls do in place of each request that executes a script of moves.
func (c *sandbox) watchMoves(verb string, do func(context.Context, faults.Request) error) {
	c.t.Helper()
	text, err := shard.Script(verb)
	check.OK(c.t, err)
	check.OK(c.t, c.rdb.ScriptLoad(c.t.Context(), text).Err())
	faults.Around(c.rdb, func(ctx context.Context, r faults.Request) error {
		if faults.Runs(r.Commands[0], text) {
			return do(ctx, r)
		}
		return r.Send(ctx)
	})
}

// TestMovesAreNotSentOnceRedisIsAway: with more tasks than a script takes, of two shards. The
// first script of one shard is answered, the other's reply is lost. The moves that no
// script had are certainly not carried out.
func TestMovesAreNotSentOnceRedisIsAway(t *testing.T) {
	t.Parallel()
	const taken, more = 200, 3
	c := newSandbox(t, 2)
	var ids []string
	for i := range 2 * (taken + more) {
		id := fmt.Sprint("t", i)
		for c.p.New(id) != i%2 {
			id += "x"
		}
		ids = append(ids, id)
	}
	do, calls := c.movesOf(c.Router("orders"), "reschedule", ids), 0
	faults.Around(c.rdb, func(ctx context.Context, r faults.Request) error {
		if calls > 0 {
			return r.Fail(faults.ErrLost)
		}
		return r.Send(ctx)
	})
	c.watchMoves("reschedule", func(ctx context.Context, r faults.Request) error {
		calls++
		check.Equal(t, "scripts", len(r.Commands), 2)
		check.OK(c.t, r.Send(ctx))
		r.Commands[1].SetErr(faults.ErrLost)
		return faults.ErrLost
	})
	for i, got := range do() {
		want, lost := task.ErrNotFound, i < 2*taken && i%2 == 1
		switch {
		case lost:
			want = task.ErrUncertain
		case i >= 2*taken:
			want = task.ErrUnavailable
		}
		if !errors.Is(got.Err, want) || errors.Is(got.Err, task.ErrUncertain) != lost {
			t.Fatalf("move %d: %v, want %v", i, got.Err, want)
		}
	}
	check.Equal(t, "requests with moves", calls, 1)
}
