package producer

import (
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// happened returns the kinds of a task's events.
func (f *fleet) happened(c *Client, id string) (kinds []task.EventKind) {
	f.t.Helper()
	events, err := c.History(f.t.Context(), orders, id)
	check.OK(f.t, err)
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func sameKinds(t *testing.T, got []task.EventKind, want ...task.EventKind) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("events: %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("events: %v, want %v", got, want)
		}
	}
}

// TestHistory of a task that is scheduled, moved, replaced and cancelled. An unknown topic and
// an ID against the rules are errors.
func TestHistory(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	c := f.client()
	check.OK(f.t, f.KeepEvents(f.t.Context(), f.placement(), time.Hour))
	for range 2 {
		_, err := c.Schedule(f.t.Context(), request("o-1", In(time.Hour)))
		check.OK(f.t, err)
		_, err = c.Reschedule(f.t.Context(), orders, "o-1", In(2*time.Hour))
		check.OK(f.t, err)
	}
	check.OK(f.t, c.Cancel(f.t.Context(), orders, "o-1"))
	sameKinds(t, f.happened(c, "o-1"), task.Scheduled, task.Moved, task.Scheduled, task.Moved, task.Cancelled)
	sameKinds(t, f.happened(c, "o-2"))

	var rule *task.RuleError
	if _, err := c.History(f.t.Context(), orders, ""); !errors.As(err, &rule) {
		t.Errorf("without an ID: %v", err)
	}
	if _, err := c.History(f.t.Context(), "odrers", "o-1"); !errors.Is(err, task.ErrUnknownTopic) {
		t.Errorf("unknown topic: %v", err)
	}
}

// TestHistoryOutlivesTheShardCount: a task moves to another shard and back. Its events are
// found wherever it was, and the moves are none.
func TestHistoryOutlivesTheShardCount(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	const id = "o-1"
	check.OK(f.t, f.KeepEvents(f.t.Context(), f.placement(), time.Hour))
	_, err := c.Schedule(f.t.Context(), request(id, In(time.Hour)))
	check.OK(f.t, err)
	f.begin(5)
	f.move()
	check.OK(f.t, f.KeepEvents(f.t.Context(), f.placement(), time.Hour))
	_, err = c.Reschedule(f.t.Context(), orders, id, In(2*time.Hour))
	check.OK(f.t, err)
	f.begin(2)
	f.move()
	check.OK(f.t, c.Cancel(f.t.Context(), orders, id))
	sameKinds(t, f.happened(c, id), task.Scheduled, task.Moved, task.Cancelled)
}
