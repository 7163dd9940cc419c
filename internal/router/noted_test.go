package router

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestARecordSaysWhenItsReasonCame: when the broker gave it back, when it was parked, with
// a reason or without, and nothing once it is as new.
func TestARecordSaysWhenItsReasonCame(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	since := func(from int64, why string) {
		t.Helper()
		r := c.read("a")
		check.Equal(t, "reason", r.Reason, why)
		if at := r.ReasonAt.UnixMilli(); at < from || at > c.now() {
			t.Errorf("%q came at %d; want %d to %d", why, at, from, c.now())
		}
	}
	give := func(r shard.Release) (from int64) {
		t.Helper()
		c.put(task.Now(), "a")
		r.Lease = leases(c.claimIDs("a"))[0]
		from = c.now()
		check.Equal(t, "given back", c.release(r), 1)
		return from
	}
	since(give(shard.Release{Attempted: true, Delay: time.Hour, Reason: "why"}), "why")
	give(shard.Release{})
	if r := c.read("a"); !r.ReasonAt.IsZero() || r.Reason != "" {
		t.Errorf("of one that was never tried: %q, %s", r.Reason, r.ReasonAt)
	}
	since(give(shard.Release{Park: true, Reason: "no queue"}), "no queue")
	since(give(shard.Release{Park: true}), "")
	_, err := c.Shard(0).Replay(c.t.Context(), "a")
	check.OK(c.t, err)
	if r := c.read("a"); !r.ReasonAt.IsZero() {
		t.Errorf("of one that was replayed: %s", r.ReasonAt)
	}
	c.delete("a")
	give(shard.Release{Attempted: true, Reason: "why"})
	from := c.now()
	check.Equal(t, "parked", c.release(shard.Release{Lease: leases(c.claimIDs("a"))[0], Park: true}), 1)
	since(from, "why") // and no older time behind it
	c.delete("a")
	for reason, parked := range map[string]bool{"handler failed": false, "given up": true, "": true} {
		a := c.delivered()
		a.Park, a.Reason = parked, reason
		from := c.now()
		_, err := c.Router("orders").Requeue(c.t.Context(), a)
		check.OK(c.t, err)
		since(from, reason)
		check.Equal(t, "parked", c.read("a").State == task.Parked, parked)
		c.delete("a")
	}
}
