//go:build chaos

package chaos_test

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/servers"
)

// TestClusterSentinel: a master is killed and comes back, and the next one stands
// still until it is replaced. What counts as stored is at a replica, so that
// nothing is lost; without that the last moments before a failover may be.
func TestClusterSentinel(t *testing.T) {
	for name, row := range map[string]struct {
		replicas, lost int
	}{
		"with min_replicas 1": {1, 0},
		"without":             {0, 2 * loadBatch},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{sentinel: true, replicas: row.replicas})
			r.begin()
			first := r.failover((*servers.Redis).Kill)
			r.lasts(3 * time.Second)
			r.must(first.Restart(t.Context()))
			r.lasts(5 * time.Second)
			second := r.failover((*servers.Redis).Pause)
			r.lasts(3 * time.Second)
			r.must(second.Resume())
			r.lasts(5 * time.Second)
			// What a failover forgot to have settled comes again, unmarked; what it
			// forgot of cancels and moves is undone.
			r.verdict("Sentinel: a master killed, one that stood still; "+name, allowance{
				repeats: 2 * 3 * inFlight, unmarked: row.lost, undone: row.lost, lost: row.lost,
			})
		})
	}
}

// failover does something to the master, and returns it once another serves.
func (r *rig) failover(strike func(*servers.Redis) error) *servers.Redis {
	r.t.Helper()
	victim, err := r.watched.Master(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.must(strike(victim))
	r.await("another master", func() bool {
		now, err := r.watched.Master(r.t.Context())
		return err == nil && now != victim
	})
	r.flows("tasks after the failover")
	return victim
}
