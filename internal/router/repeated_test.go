package router

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// refusedCall is a call that its second copy refuses, although the first one took effect.
type refusedCall struct {
	script string
	do     func(ctx context.Context, r *Router) error
	// between happens after the first copy: a delivery, or a change by another caller.
	between func(c *sandbox)
	want    error
}

func refusedCalls() map[string]refusedCall {
	hour := task.In(2 * time.Hour)
	delivered := func(c *sandbox) { c.delete("there") }
	schedule := func(ctx context.Context, r *Router, e shard.Entry) error {
		return r.Schedule(ctx, []shard.Entry{e})[0].Err
	}
	return map[string]refusedCall{
		"cancel": {"delete", func(ctx context.Context, r *Router) error { return r.Cancel(ctx, "there") },
			func(*sandbox) {}, task.ErrNotFound},
		"cancel many": {"delete", func(ctx context.Context, r *Router) error {
			return r.CancelMany(ctx, []string{"there", "other"}, 100)[0]
		}, func(*sandbox) {}, task.ErrNotFound},
		"reschedule": {"reschedule", func(ctx context.Context, r *Router) error {
			_, err := r.Reschedule(ctx, "there", hour)
			return err
		}, delivered, task.ErrNotFound},
		"schedule if present": {"put", func(ctx context.Context, r *Router) error {
			e := entry("there", hour)
			e.IfPresent = true
			return schedule(ctx, r, e)
		}, delivered, task.ErrNotFound},
		"schedule if absent": {"put", func(ctx context.Context, r *Router) error {
			e := entry("absent", hour)
			e.IfAbsent = true
			return schedule(ctx, r, e)
		}, func(c *sandbox) { c.put(hour, "absent") }, task.ErrExists},
	}
}

// TestACallWhoseFirstReplyWasLostSaysSoInItsRefusal: the first copy took effect, and the second
// finds something else. Without a lost reply a refusal doesn't say so.
func TestACallWhoseFirstReplyWasLostSaysSoInItsRefusal(t *testing.T) {
	t.Parallel()
	for name, call := range refusedCalls() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call.run(t, func(c *sandbox) { call.between(c) })
		})
		t.Run(name+", a change of M meanwhile", func(t *testing.T) {
			t.Parallel()
			call.run(t, func(c *sandbox) { call.between(c); c.begin(50); c.fence() })
		})
	}
}

// run loses the first reply of a call, and then calls again without a loss.
func (call refusedCall) run(t *testing.T, between func(c *sandbox)) {
	t.Helper()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "there", "other")
	lost := false
	c.watchMoves(call.script, func(ctx context.Context, r faults.Request) error {
		if lost {
			return r.Send(ctx)
		}
		lost = true
		check.OK(c.t, r.Send(ctx))
		between(c)
		return r.Fail(faults.ErrLost)
	})
	if err := call.do(c.t.Context(), c.Router("orders")); !errors.Is(err, call.want) || !errors.Is(err, ErrRepeated) {
		t.Errorf("after a lost reply: %v, want %v and %v", err, call.want, ErrRepeated)
	}
	check.Equal(t, "a reply was lost", lost, true)
	if err := call.do(c.t.Context(), c.Router("orders")); !errors.Is(err, call.want) || errors.Is(err, ErrRepeated) {
		t.Errorf("again: %v, want %v alone", err, call.want)
	}
}

// TestAnAbsentTaskBesideAMoveIsCertainlyAbsent: one call moves tasks from their old shards to
// their new ones. No reply is lost.
func TestAnAbsentTaskBesideAMoveIsCertainlyAbsent(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "there", "other")
	c.begin(50)
	check.Equal(t, "moving", c.p.Moving("there"), true)
	r, hour := c.Router("orders"), task.In(2*time.Hour)
	moved := r.RescheduleMany(c.t.Context(), []Move{{"there", hour}, {"absent", hour}}, 100)
	check.OK(t, moved[0].Err)
	cancelled := r.CancelMany(c.t.Context(), []string{"other", "absent"}, 100)
	check.OK(t, cancelled[0])
	for _, err := range []error{moved[1].Err, cancelled[1]} {
		if !errors.Is(err, task.ErrNotFound) || errors.Is(err, ErrRepeated) {
			t.Errorf("an absent task: %v, want %v alone", err, task.ErrNotFound)
		}
	}
}
