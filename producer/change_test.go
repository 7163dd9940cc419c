package producer

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

func TestACancelledTaskIsNotDelivered(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	due := map[string]When{"waiting": In(time.Hour), "due": Now(), "leased": Now()}
	for _, id := range []string{"waiting", "due", "leased"} {
		_, err := c.Schedule(f.ctx(), request(id, due[id]))
		f.ok(err)
		if id == "leased" {
			equal(t, "claimed", len(f.claimAll()), 2)
		}
	}
	for _, id := range []string{"waiting", "due", "leased"} {
		f.ok(c.Cancel(f.ctx(), orders, id))
		is(t, c.Cancel(f.ctx(), orders, id), task.ErrNotFound, "orders", id)
		_, err := c.Get(f.ctx(), orders, id)
		is(t, err, task.ErrNotFound, "orders", id)
	}
	f.inPlace(nil)
}

func TestRescheduleKeepsAllButTheDueTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	r := request("a", In(time.Hour))
	r.Headers, r.ContentType = map[string]string{"k": "v"}, "text/plain"
	_, err := c.Schedule(f.ctx(), r)
	f.ok(err)
	due, err := c.Reschedule(f.ctx(), orders, "a", In(-time.Hour))
	f.ok(err)
	s, err := c.Get(f.ctx(), orders, "a")
	f.ok(err)
	equal(t, "due", s.Due, due)
	equal(t, "payload", string(s.Payload), "payload of a")
	equal(t, "header", s.Headers["k"], "v")
	equal(t, "content type", s.ContentType, "text/plain")
	equal(t, "claimed", len(f.claimAll()), 1)
	_, err = c.Reschedule(f.ctx(), orders, "nothing", Now())
	is(t, err, task.ErrNotFound, "orders", "nothing")
}

func TestGetTellsTheStateAndTheReason(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	_, err := c.Schedule(f.ctx(), request("a", Now()))
	f.ok(err)
	before := f.now()
	claimed := f.claimAll()[0]
	after := f.now()
	s, err := c.Get(f.ctx(), orders, "a")
	f.ok(err)
	equal(t, "state", s.State, task.Leased)
	if claimed := s.NextAttempt.Add(-time.Minute).UnixMilli(); claimed < before || claimed > after {
		t.Errorf("the lease of a minute ends at %s, and was taken between %d and %d", s.NextAttempt, before, after)
	}
	_, err = f.Shard(0).Release(f.ctx(), []shard.Release{{
		Lease: shard.Lease{ID: "a", Token: claimed.Token}, Park: true, Attempted: true, Reason: "312 NO_ROUTE",
	}})
	f.ok(err)
	s, err = c.Get(f.ctx(), orders, "a")
	f.ok(err)
	equal(t, "state", s.State, task.Parked)
	equal(t, "reason", s.Reason, "312 NO_ROUTE")
	equal(t, "attempt", s.Attempt, 2)
	equal(t, "next attempt is zero", s.NextAttempt.IsZero(), true)
	_, err = c.Reschedule(f.ctx(), orders, "a", In(time.Hour))
	f.ok(err)
	s, err = c.Get(f.ctx(), orders, "a")
	f.ok(err)
	equal(t, "state", s.State, task.Waiting)
	equal(t, "attempt", s.Attempt, 1)
}
