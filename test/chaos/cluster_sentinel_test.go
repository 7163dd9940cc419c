//go:build chaos

package chaos_test

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
)

// TestClusterSentinel: a master is killed and restarted, and the next one is paused until
// it is replaced. With min_replicas every acknowledged task is on a replica, so nothing
// is lost. Without it, writes of the last moments before a failover may be lost.
func TestClusterSentinel(t *testing.T) {
	for name, row := range map[string]struct {
		replicas, lost int
	}{
		"with min_replicas 1": {1, 0},
		"without":             {0, 2 * loadBatch},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t, options{sentinel: true, replicas: row.replicas})
			r.begin()
			first := r.failover((*servers.Redis).Kill)
			r.lasts(3 * time.Second)
			r.must(first.Restart(t.Context()))
			r.lasts(5 * time.Second)
			second := r.failover((*servers.Redis).Pause)
			r.lasts(3 * time.Second)
			r.must(second.Resume())
			r.lasts(5 * time.Second)
			// If a failover loses the reply to a schedule, the call is repeated and may store
			// tasks again that were delivered meanwhile. If the failover loses a cancel or a
			// reschedule, that call has no effect.
			r.verdict("Sentinel: a master killed, one that stood still; "+name, allowance{
				repeats: 2 * 3 * inFlight, unmarked: 2 * loadBatch, undone: row.lost, lost: row.lost,
			})
		})
	}
}

// failover calls strike on the master, and returns that master once another one serves.
func (r *harness) failover(strike func(*servers.Redis) error) *servers.Redis {
	r.t.Helper()
	victim, err := r.watched.Master(r.t.Context())
	check.OK(r.t, err)
	r.must(strike(victim))
	r.await("another master", func() bool {
		now, err := r.watched.Master(r.t.Context())
		return err == nil && now != victim
	})
	r.flows("tasks after the failover")
	return victim
}
