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

// TestRescheduleManyWhileTheShardCountChanges: some tasks are moved by a mover already. A
// later move of the same ID wins, and nothing brings back a task that was cancelled.
func TestRescheduleManyWhileTheShardCountChanges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]bool{"stable": false, "the shard count changes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			const tasks = 60
			var moves []Move
			for i := range tasks {
				id := fmt.Sprint(i)
				c.put(task.In(time.Hour), id)
				moves = append(moves, Move{id, task.In(time.Hour)}, Move{"absent " + id, task.Now()},
					Move{id, task.In(2 * time.Hour)})
			}
			r := c.Router("orders")
			if change {
				c.begin(4)
				r.Assume(c.p)
				c.ok(errors.Join(r.show(c.ctx(), c.p, []int{0})[0]))
				for i := range 20 {
					if id := fmt.Sprint(i); c.p.Moving(id) {
						c.move(id)
					}
				}
			}
			for i := 20; i < 30; i++ {
				c.ok(r.Cancel(c.ctx(), fmt.Sprint(i)))
			}
			now := c.now()
			for i, got := range r.RescheduleMany(c.ctx(), moves, task.DefaultMaxPayload) {
				n, cancelled := i/3, i/3 >= 20 && i/3 < 30
				if cancelled || i%3 == 1 {
					if !errors.Is(got.Err, task.ErrNotFound) || got.Due != 0 {
						t.Errorf("move %d of task %d: due %d, %v", i%3, n, got.Due, got.Err)
					}
					continue
				}
				c.ok(got.Err)
				s, err := r.Get(c.ctx(), fmt.Sprint(n))
				c.ok(err)
				if due := s.Due.UnixMilli(); due < now+2*time.Hour.Milliseconds() || i%3 == 2 && due != got.Due {
					t.Errorf("task %d is due at %d, want %d", n, due, got.Due)
				}
				if _, err := c.Shard(c.p.Old(fmt.Sprint(n))).Read(c.ctx(), c.p, fmt.Sprint(n)); c.p.Moving(fmt.Sprint(n)) &&
					!errors.Is(err, task.ErrNotFound) {
					t.Errorf("task %d lies in its old shard (%v)", n, err)
				}
			}
		})
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
		"moved":            {func(c *sandbox) { c.put(task.In(time.Hour), id); moved(c); c.fence(0); c.move(id) }, nil},
		"cancelled, at old": {func(c *sandbox) {
			c.put(task.In(time.Hour), id)
			moved(c)
			// a caller died after the new shard had noted the cancel
			w := c.Withdraw(c.ctx(), c.p, c.deadline(), []shard.Deletion{{Names: shard.Names{Shard: 1, IDs: []string{id}},
				Handled: true}})[0]
			c.ok(w.Err)
		}, task.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			row.given(c)
			e := entry(id, task.In(3*time.Hour))
			e.IfPresent = true
			r := c.Router("orders")
			got := r.Schedule(c.ctx(), []shard.Entry{e})[0]
			if !errors.Is(got.Err, row.want) {
				t.Fatalf("got %v, want %v", got.Err, row.want)
			}
			if row.want != nil {
				if n, err := c.rdb.ZCard(c.ctx(), c.key("due", c.p.New(id))).Result(); err != nil || n != 0 {
					t.Errorf("%d tasks are stored, %v", n, err)
				}
				return
			}
			s, err := r.Get(c.ctx(), id)
			c.ok(err)
			check.Equal(t, "due", s.Due.UnixMilli(), got.Due)
		})
	}
}

// park parks a task of shard 0 that is due.
func (c *sandbox) park(id string) {
	b := c.claimIDs(id)
	c.release(shard.Release{Lease: shard.Lease{ID: id, Token: b.Tasks[0].Token}, Park: true})
}

// fence shows a shard the placement.
func (c *sandbox) fence(at int) {
	_, err := c.Shard(at).Fence(c.ctx(), c.p)
	c.ok(err)
}
