package producer

import (
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
)

// happened returns the kinds of a task's events.
func (f *fleet) happened(c *Client, id string) (kinds []task.EventKind) {
	f.t.Helper()
	events, err := c.History(f.ctx(), orders, id)
	f.ok(err)
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
	f.ok(f.KeepEvents(f.ctx(), f.placement(), time.Hour))
	for range 2 {
		_, err := c.Schedule(f.ctx(), request("o-1", In(time.Hour)))
		f.ok(err)
		_, err = c.Reschedule(f.ctx(), orders, "o-1", In(2*time.Hour))
		f.ok(err)
	}
	f.ok(c.Cancel(f.ctx(), orders, "o-1"))
	sameKinds(t, f.happened(c, "o-1"), task.Scheduled, task.Moved, task.Scheduled, task.Moved, task.Cancelled)
	sameKinds(t, f.happened(c, "o-2"))

	var rule *task.RuleError
	if _, err := c.History(f.ctx(), orders, ""); !errors.As(err, &rule) {
		t.Errorf("without an ID: %v", err)
	}
	if _, err := c.History(f.ctx(), "odrers", "o-1"); !errors.Is(err, task.ErrUnknownTopic) {
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
	f.ok(f.KeepEvents(f.ctx(), f.placement(), time.Hour))
	_, err := c.Schedule(f.ctx(), request(id, In(time.Hour)))
	f.ok(err)
	f.begin(5)
	f.move()
	f.ok(f.KeepEvents(f.ctx(), f.placement(), time.Hour))
	_, err = c.Reschedule(f.ctx(), orders, id, In(2*time.Hour))
	f.ok(err)
	f.begin(2)
	f.move()
	f.ok(c.Cancel(f.ctx(), orders, id))
	sameKinds(t, f.happened(c, id), task.Scheduled, task.Moved, task.Cancelled)
}
