package router

import (
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestARescheduleThatMissesChangesNothing: a consumer has the task, and its retry is due when
// the consumer asked for it.
func TestARescheduleThatMissesChangesNothing(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	a := c.delivered()
	if _, err := c.Router("orders").Reschedule(c.ctx(), a.ID, task.In(time.Hour)); !errors.Is(err, task.ErrNotFound) {
		t.Fatalf("moved what is not stored: %v", err)
	}
	delivery := shard.Delivered{ID: a.ID, Due: a.Due, Scheduled: a.Scheduled}
	at, allowed, err := c.AllowNext(c.ctx(), delivery, a.Due+1, time.Hour)
	c.ok(err)
	check.Equal(t, "allowed", allowed, true)
	check.Equal(t, "due again", at, a.Due+1)
}
