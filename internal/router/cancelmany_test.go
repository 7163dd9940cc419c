package router

import (
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestACancelWithoutReplicasSaysWhatItRemoved: the master has removed the task. A repeat doesn't
// find it, so the first error must say it.
func TestACancelWithoutReplicasSaysWhatItRemoved(t *testing.T) {
	t.Parallel()
	c := sandboxOf(t, fixture.At(t, servertest.OwnRedis(t).Addr(), "p"), 4) // it has no replica
	routers := c.Router("orders")
	const many = task.DefaultMaxPayload
	for _, id := range []string{"a", "b"} {
		check.OK(t, routers.Schedule(t.Context(), []shard.Entry{entry(id, task.In(time.Hour))})[0].Err)
	}
	check.OK(t, c.scripts.AwaitReplicas(1))
	cancelled := routers.CancelMany(t.Context(), []string{"a", "never stored"}, many)
	cancelled = append(cancelled, routers.Cancel(t.Context(), "b"), routers.Cancel(t.Context(), "b"))
	for n, removed := range []bool{true, false, true, false} {
		err := cancelled[n]
		if !errors.Is(err, task.ErrReplicas) || errors.Is(err, ErrRemoved) != removed || errors.Is(err, task.ErrNotFound) {
			t.Errorf("cancel %d: %v, want %v, removed: %v", n, err, task.ErrReplicas, removed)
		}
	}
	check.OK(t, c.scripts.AwaitReplicas(0))
	for n, err := range routers.CancelMany(t.Context(), []string{"a", "b"}, many) {
		if !errors.Is(err, task.ErrNotFound) || errors.Is(err, ErrRemoved) {
			t.Errorf("repeat %d: %v, want %v", n, err, task.ErrNotFound)
		}
	}
}
