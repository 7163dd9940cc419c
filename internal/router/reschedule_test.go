package router

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestMovesWhileTheShardCountChanges: a mover has moved some tasks already. Each task has one
// copy, in its new shard. The last move of an ID wins. Nothing brings back a task that was
// cancelled. A reschedule begins a task again; a retiming keeps its attempts and its reason.
func TestMovesWhileTheShardCountChanges(t *testing.T) {
	t.Parallel()
	verbs := map[string]func(c *sandbox, ids []string) (moved []string, do func(r *Router) []Scheduled){
		"reschedule": reschedules, "retime": retimings,
	}
	for verb, moves := range verbs {
		for name, change := range map[string]bool{"stable": false, "the shard count changes": true} {
			t.Run(verb+", "+name, func(t *testing.T) {
				t.Parallel()
				c := newSandbox(t, 1)
				ids := c.retries(60)
				moved, do := moves(c, ids)
				r := c.Router("orders")
				if change {
					c.begin(4)
					r.Assume(c.p)
					check.OK(c.t, errors.Join(r.show(c.t.Context(), c.p, []int{0})[0]))
					for _, id := range ids[:20] {
						if c.p.Moving(id) {
							c.move(id)
						}
					}
				}
				for _, id := range ids[20:30] {
					check.OK(c.t, r.Cancel(c.t.Context(), id))
				}
				stored := slices.Concat(ids[:20], ids[30:])
				now := c.now()
				for range 2 {
					due := map[string]int64{}
					for i, got := range do(r) {
						if id := moved[i]; slices.Contains(stored, id) {
							check.OK(c.t, got.Err)
							due[id] = got.Due
						} else if !errors.Is(got.Err, task.ErrNotFound) || got.Due != 0 {
							t.Errorf("task %s: due %d, %v", id, got.Due, got.Err)
						}
					}
					for _, id := range stored {
						c.movedTo(id, due[id], verb == "retime")
						if due[id] < now+2*time.Hour.Milliseconds() {
							t.Errorf("task %s is due at %d, at %d", id, due[id], now)
						}
					}
				}
				copies := int64(0)
				for at := range 4 {
					copies += c.rdb.ZCard(c.t.Context(), c.key("due", at)).Val()
				}
				check.Equal(t, "copies", copies, int64(len(stored)))
			})
		}
	}
}

// retries stores n tasks in shard 0, each with one attempt that failed.
func (c *sandbox) retries(n int) (ids []string) {
	c.t.Helper()
	for i := range n {
		ids = append(ids, fmt.Sprint(i))
	}
	c.put(task.Now(), ids...)
	var back []shard.Release
	for _, l := range leases(c.claimIDs(slices.Clone(ids)...)) {
		back = append(back, shard.Release{Lease: l, Attempted: true, Delay: time.Hour, Reason: "why"})
	}
	check.Equal(c.t, "released", c.release(back...), n)
	return ids
}

// reschedules moves each task twice, and an absent one in between.
func reschedules(c *sandbox, ids []string) (moved []string, do func(r *Router) []Scheduled) {
	var moves []Move
	for _, id := range ids {
		moved = append(moved, id, "absent "+id, id)
		moves = append(moves, Move{id, task.In(time.Hour)}, Move{"absent " + id, task.Now()},
			Move{id, task.In(2 * time.Hour)})
	}
	return moved, func(r *Router) []Scheduled { return r.RescheduleMany(c.t.Context(), moves, task.DefaultMaxPayload) }
}

// retimings moves the stored version of each task once, however often it is called.
func retimings(c *sandbox, ids []string) (moved []string, do func(r *Router) []Scheduled) {
	var moves []Retime
	op := shard.NewOp()
	for _, id := range ids {
		moves = append(moves, Retime{ID: id, When: task.In(2 * time.Hour), Op: op,
			Retiming: shard.Retiming{Seen: c.read(id).Version()}})
	}
	return ids, func(r *Router) []Scheduled { return r.RetimeMany(c.t.Context(), moves, task.DefaultMaxPayload) }
}

// movedTo checks a task that was moved to due, and that it left its old shard.
func (c *sandbox) movedTo(id string, due int64, kept bool) {
	c.t.Helper()
	attempt, reason := 1, ""
	if kept {
		attempt, reason = 2, "why"
	}
	s, err := c.Router("orders").Get(c.t.Context(), id)
	check.OK(c.t, err)
	if s.Due.UnixMilli() != due || s.Attempt != attempt || s.Reason != reason {
		c.t.Errorf("task %s: attempt %d, reason %q, due %d, want %d", id, s.Attempt, s.Reason, s.Due.UnixMilli(), due)
	}
	if !c.p.Moving(id) {
		return
	}
	if _, err := c.Shard(c.p.Old(id)).Read(c.t.Context(), c.p, id); !errors.Is(err, task.ErrNotFound) {
		c.t.Errorf("task %s lies in its old shard (%v)", id, err)
	}
}

// TestIfPresentReplacesOnlyWhatIsStored at the old shard, at the new one, or nowhere. A task
// that the new shard had is not there, although the old one has a copy.
func TestIfPresentReplacesOnlyWhatIsStored(t *testing.T) {
	t.Parallel()
	const id = "a"
	moved := func(c *sandbox) {
		c.begin(2)
		c.Router("orders").Assume(c.p)
		check.Equal(c.t, "moving", c.p.Moving(id), true)
	}
	for name, row := range map[string]struct {
		given func(c *sandbox)
		want  error
	}{
		"stored":           {func(c *sandbox) { c.put(task.In(time.Hour), id) }, nil},
		"parked":           {func(c *sandbox) { c.put(task.Now(), id); c.park(id) }, nil},
		"absent":           {func(*sandbox) {}, task.ErrNotFound},
		"at the old shard": {func(c *sandbox) { c.put(task.In(time.Hour), id); moved(c) }, nil},
		"at neither":       {moved, task.ErrNotFound},
		"moved":            {func(c *sandbox) { c.put(task.In(time.Hour), id); moved(c); c.fence(); c.move(id) }, nil},
		"cancelled, at old": {func(c *sandbox) {
			c.put(task.In(time.Hour), id)
			moved(c)
			// a caller died after the new shard had noted the cancel
			w := c.Withdraw(c.t.Context(), c.p, c.deadline(), []shard.Deletion{{Names: shard.Names{Shard: 1, IDs: []string{id}},
				Handled: true}})[0]
			check.OK(c.t, w.Err)
		}, task.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			row.given(c)
			e := entry(id, task.In(3*time.Hour))
			e.IfPresent = true
			r := c.Router("orders")
			got := r.Schedule(c.t.Context(), []shard.Entry{e})[0]
			if !errors.Is(got.Err, row.want) {
				t.Fatalf("got %v, want %v", got.Err, row.want)
			}
			if row.want != nil {
				if n, err := c.rdb.ZCard(c.t.Context(), c.key("due", c.p.New(id))).Result(); err != nil || n != 0 {
					t.Errorf("%d tasks are stored, %v", n, err)
				}
				return
			}
			s, err := r.Get(c.t.Context(), id)
			check.OK(c.t, err)
			check.Equal(t, "due", s.Due.UnixMilli(), got.Due)
		})
	}
}

// park parks a task of shard 0 that is due.
func (c *sandbox) park(id string) {
	b := c.claimIDs(id)
	c.release(shard.Release{Lease: shard.Lease{ID: id, Token: b.Tasks[0].Token}, Park: true})
}

// fence shows shard 0 the placement.
func (c *sandbox) fence() {
	_, err := c.Shard(0).Fence(c.t.Context(), c.p)
	check.OK(c.t, err)
}

// TestARescheduleThatMissesChangesNothing: a consumer has the task, and its retry is due when
// the consumer asked for it.
func TestARescheduleThatMissesChangesNothing(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	a := c.delivered()
	if _, err := c.Router("orders").Reschedule(c.t.Context(), a.ID, task.In(time.Hour)); !errors.Is(err,
		task.ErrNotFound) {
		t.Fatalf("moved what is not stored: %v", err)
	}
	delivery := shard.Delivered{ID: a.ID, Due: a.Due, Scheduled: a.Scheduled}
	at, allowed, err := c.AllowNext(c.t.Context(), delivery, a.Due+1, time.Hour)
	check.OK(c.t, err)
	check.Equal(t, "allowed", allowed, true)
	check.Equal(t, "due again", at, a.Due+1)
}
