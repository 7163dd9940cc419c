package producer

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

func TestACancelledTaskIsNotDelivered(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	due := map[string]When{"waiting": In(time.Hour), "due": Now(), "leased": Now()}
	for _, id := range []string{"waiting", "due", "leased"} {
		_, err := c.Schedule(f.t.Context(), request(id, due[id]))
		check.OK(f.t, err)
		if id == "leased" {
			check.Equal(t, "claimed", len(f.claimAll()), 2)
		}
	}
	for _, id := range []string{"waiting", "due", "leased"} {
		check.OK(f.t, c.Cancel(f.t.Context(), orders, id))
		is(t, c.Cancel(f.t.Context(), orders, id), task.ErrNotFound, "orders", id)
		_, err := c.Get(f.t.Context(), orders, id)
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
	_, err := c.Schedule(f.t.Context(), r)
	check.OK(f.t, err)
	due, err := c.Reschedule(f.t.Context(), orders, "a", In(-time.Hour))
	check.OK(f.t, err)
	s, err := c.Get(f.t.Context(), orders, "a")
	check.OK(f.t, err)
	check.Equal(t, "due", s.Due, due)
	check.Equal(t, "payload", string(s.Payload), "payload of a")
	check.Equal(t, "header", s.Headers["k"], "v")
	check.Equal(t, "content type", s.ContentType, "text/plain")
	check.Equal(t, "claimed", len(f.claimAll()), 1)
	_, err = c.Reschedule(f.t.Context(), orders, "nothing", Now())
	is(t, err, task.ErrNotFound, "orders", "nothing")
}

func TestGetTellsTheStateAndTheReason(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	_, err := c.Schedule(f.t.Context(), request("a", Now()))
	check.OK(f.t, err)
	before := f.now()
	claimed := f.claimAll()[0]
	after := f.now()
	s, err := c.Get(f.t.Context(), orders, "a")
	check.OK(f.t, err)
	check.Equal(t, "state", s.State, task.Leased)
	if claimed := s.NextAttempt.Add(-time.Minute).UnixMilli(); claimed < before || claimed > after {
		t.Errorf("the lease of a minute ends at %s, and was taken between %d and %d", s.NextAttempt, before, after)
	}
	_, err = f.Shard(0).Release(f.t.Context(), []shard.Release{{
		Lease: shard.Lease{ID: "a", Token: claimed.Token}, Park: true, Attempted: true, Reason: "312 NO_ROUTE",
	}})
	check.OK(f.t, err)
	s, err = c.Get(f.t.Context(), orders, "a")
	check.OK(f.t, err)
	check.Equal(t, "state", s.State, task.Parked)
	check.Equal(t, "reason", s.Reason, "312 NO_ROUTE")
	check.Equal(t, "attempt", s.Attempt, 2)
	check.Equal(t, "next attempt is zero", s.NextAttempt.IsZero(), true)
	_, err = c.Reschedule(f.t.Context(), orders, "a", In(time.Hour))
	check.OK(f.t, err)
	s, err = c.Get(f.t.Context(), orders, "a")
	check.OK(f.t, err)
	check.Equal(t, "state", s.State, task.Waiting)
	check.Equal(t, "attempt", s.Attempt, 1)
}
