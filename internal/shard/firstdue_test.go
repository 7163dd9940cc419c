package shard

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
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
				a.Body = EncodeBody(&task.Task{Headers: map[string]string{HeaderNext: NextMark(first, due)}})
			}
			a.Next = due
			_, err := c.Router("orders").Requeue(c.ctx(), a)
			c.ok(err)
			for range 2 {
				b := c.claimIDs("a")
				equal(t, "due of the delivery", b.Tasks[0].Due.UnixMilli(), due)
				equal(t, "first due of the delivery", b.Tasks[0].FirstDue.UnixMilli(), first)
				lease := Lease{"a", b.Tasks[0].Token}
				c.release(Release{Lease: lease, Delay: time.Millisecond, Attempted: true, Reason: "no route"})
				c.reach("a")
			}
			moved, err := c.Router("orders").Reschedule(c.ctx(), "a", In(time.Hour))
			c.ok(err)
			r := c.read("a")
			equal(t, "due of what was rescheduled", r.Due.UnixMilli(), moved)
			equal(t, "first due of what was rescheduled", r.FirstDue.UnixMilli(), moved)
		})
	}
}

// TestATaskThatWasNeverRetriedPaysNothing for its first due.
func TestATaskThatWasNeverRetriedPaysNothing(t *testing.T) {
	t.Parallel()
	due := time.UnixMilli(1796119200000).UTC()
	record := "\x10" + big48(due.UnixMilli()) + big48(1) + "ABCDEF" + string(EncodeBody(&task.Task{FirstDue: due}))
	r, err := DecodeRecord("orders", "a", record)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "bytes", len(record), recordHead+1)
	equal(t, "first due", r.FirstDue, due)
	equal(t, "mark", NextMark(1796119200000, 1796119200000), "1")
	equal(t, "mark of a retry", NextMark(1796119200000, 1796119200001), "1 1796119200000 1796119200001")
}
