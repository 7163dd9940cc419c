package router

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestRetimeManyWhileTheShardCountChanges: some tasks are moved by a mover already. Each
// task has one copy, its new due time and its attempts. Nothing brings back a task that was
// cancelled.
func TestRetimeManyWhileTheShardCountChanges(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	const tasks = 60
	var moves []Retime
	for i := range tasks {
		c.put(task.Now(), fmt.Sprint(i))
	}
	b := c.askAt(0, shard.Claim{Claimant: "w", Request: "1", Limit: tasks, Lease: time.Minute})
	for _, s := range b.Tasks {
		n, err := c.Shard(0).Release(c.ctx(), []shard.Release{{Lease: shard.Lease{ID: s.ID, Token: s.Token}, Attempted: true,
			Delay: time.Hour, Reason: "why"}})
		check.Equal(t, "released", n, 1)
		c.ok(err)
	}
	op := shard.NewOp()
	for i := range tasks {
		s, err := c.Shard(0).Read(c.ctx(), c.p, fmt.Sprint(i))
		c.ok(err)
		moves = append(moves, Retime{ID: s.ID, When: task.In(2 * time.Hour), Op: op,
			Retiming: shard.Retiming{Seen: s.Version()}})
	}
	r := c.Router("orders")
	c.begin(4)
	r.Assume(c.p)
	c.ok(errors.Join(r.show(c.ctx(), c.p, []int{0})[0]))
	for i := range 20 {
		if id := fmt.Sprint(i); c.p.Moving(id) {
			c.move(id)
		}
	}
	for i := 20; i < 30; i++ {
		c.ok(r.Cancel(c.ctx(), fmt.Sprint(i)))
	}
	for round := range 2 {
		for i, got := range r.RetimeMany(c.ctx(), moves, task.DefaultMaxPayload) {
			id := fmt.Sprint(i)
			if i >= 20 && i < 30 {
				check.Equal(t, "a cancelled task is gone", errors.Is(got.Err, task.ErrNotFound), true)
				continue
			}
			c.ok(got.Err)
			s, err := r.Get(c.ctx(), id)
			c.ok(err)
			if s.Due.UnixMilli() != got.Due || s.Attempt != 2 || s.Reason != "why" {
				t.Errorf("round %d: task %s: %+v, due %d", round, id, s, got.Due)
			}
		}
	}
	copies := int64(0)
	for at := range 4 {
		copies += c.rdb.ZCard(c.ctx(), c.key("due", at)).Val()
	}
	check.Equal(t, "copies", copies, tasks-10)
}
