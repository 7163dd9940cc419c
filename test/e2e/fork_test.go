package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestFork: if there are two placements with one epoch, the fleet names both in its log
// and in status, and keeps delivering. After the operator fixes this as docs/operate.md
// says, the change ends, and nothing is lost.
func TestFork(t *testing.T) {
	t.Parallel()
	w := newFileSource(t)
	w.set("orders", fleet.DeclaredTopic("orders", fleet.Topic{"shards": 2, "tick": "100ms", "paused": true}))
	w.start(2)
	w.consume("orders.due")
	w.pause(true)
	far := orders("orders", "far", 100, time.Now().Add(time.Hour), time.Hour, 0)
	w.schedule(far...)
	w.send("orders", "before", 50)

	from := w.placement()
	lost := shard.Placement{Epoch: from.Epoch + 1, Shards: 3, Previous: 2, Phase: shard.Migrating}
	other := lost
	other.Shards = 4
	_, err := w.ordersTopic().Shard(1).Fence(t.Context(), lost)
	check.OK(t, err)
	w.setPlacement(other)
	w.set("orders", fleet.Topic{"shards": 4})
	told := func(text string) bool {
		return strings.Contains(text, task.ErrForked.Error()) && strings.Contains(text, lost.String()) &&
			strings.Contains(text, other.String())
	}
	check.Until(t, "status to name both", rarely(func() bool {
		return told(fmt.Sprint(w.status().Topic("orders").Notes))
	}))
	check.Until(t, "a log to name both", rarely(func() bool {
		return told(w.log(w.scanners[0])) ||
			told(w.log(w.scanners[1]))
	}))
	if p := w.placement(); p != other {
		t.Fatalf("the placement is %v, want %v until somebody fixes it", p, other)
	}
	w.pause(false)
	w.awaitCount(50) // due tasks are still delivered

	w.setPlacement(shard.Placement{Epoch: other.Epoch + 1, Shards: 4, Previous: 4, Phase: shard.Migrating})
	w.settled(4)
	check.Until(t, "status without the fork", rarely(func() bool { return len(w.status().Topic("orders").Notes) == 0 }))
	w.send("orders", "after", 50)
	w.hasten(far)
	w.check()
}

// setPlacement sets the placement of topic orders, as docs/operate.md tells an
// operator to do.
func (w *fixture) setPlacement(p shard.Placement) {
	w.t.Helper()
	key := w.settings.RedisPrefix + ":placement:{orders}"
	check.OK(w.t, w.redis.HSet(w.t.Context(), key, "value", p.String()).Err())
}
