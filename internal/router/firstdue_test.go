package router

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestABrokersReturnKeepsDueAndFirstDue: of a task that was never retried by its consumer
// both stay what its producer asked for, and of a retry both stay, too. A reschedule gives
// both the new time.
func TestABrokersReturnKeepsDueAndFirstDue(t *testing.T) {
	t.Parallel()
	for name, retried := range map[string]bool{"its producer's": false, "a retry": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			a := c.delivered()
			due := c.now()
			first := due
			if retried {
				first = a.Due - 1000
				a.Body = shard.EncodeBody(&task.Task{Headers: map[string]string{shard.HeaderNext: shard.NextMark(first, due, 3)}})
			}
			a.Next = due
			_, err := c.Router("orders").Requeue(c.t.Context(), a)
			check.OK(c.t, err)
			for range 2 {
				b := c.claimIDs("a")
				check.Equal(t, "due of the delivery", b.Tasks[0].Due.UnixMilli(), due)
				check.Equal(t, "first due of the delivery", b.Tasks[0].FirstDue.UnixMilli(), first)
				lease := shard.Lease{ID: "a", Token: b.Tasks[0].Token}
				c.release(shard.Release{Lease: lease, Delay: time.Millisecond, Attempted: true, Reason: "no route"})
				c.reach("a")
			}
			moved, err := c.Router("orders").Reschedule(c.t.Context(), "a", task.In(time.Hour))
			check.OK(c.t, err)
			r := c.read("a")
			check.Equal(t, "due of what was rescheduled", r.Due.UnixMilli(), moved)
			check.Equal(t, "first due of what was rescheduled", r.FirstDue.UnixMilli(), moved)
		})
	}
}
