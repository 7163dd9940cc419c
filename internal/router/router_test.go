package router

import (
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	patience "github.com/duefleet/duefleet/test/wait"
)

// TestARescheduleThatMissesIsDatedByTheShard: a consumer hears of a move of the task it
// has, however far behind the producer's estimate of Redis's clock is.
func TestARescheduleThatMissesIsDatedByTheShard(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	a := c.delivered()
	patience.For(t, "the next millisecond", func() bool { return c.now() > a.Due })
	c.scripts.AssumeTime(c.now() - 1000)
	if _, err := c.Router("orders").Reschedule(c.ctx(), a.ID, shard.In(time.Hour)); !errors.Is(err, task.ErrNotFound) {
		t.Fatalf("moved what is not stored: %v", err)
	}
	delivery := shard.Delivered{ID: a.ID, Due: a.Due, Scheduled: a.Scheduled}
	at, allowed, err := c.AllowNext(c.ctx(), delivery, a.Due+1, time.Hour)
	c.ok(err)
	check.Equal(t, "allowed", allowed, true)
	if requested := a.Due + time.Hour.Milliseconds(); at < requested {
		t.Errorf("due again in %s, want in an hour or so", time.Duration(at-a.Due)*time.Millisecond)
	}
}
