//go:build chaos

package chaos_test

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
)

// TestClusterBrokers: in a cluster of three nodes, a follower is killed, then the queue's
// leader. Then a leader is paused for longer than the others wait for it. Scanners
// connect to another URL of their list. Confirms come late, but none is lost.
func TestClusterBrokers(t *testing.T) {
	r := newHarness(t, options{brokers: true})
	r.begin()
	for _, which := range []string{"a follower", "the leader"} {
		victim := r.node(which == "the leader")
		r.must(victim.Kill())
		r.flows("tasks after " + which + " was killed")
		r.must(victim.Restart(t.Context()))
		r.lasts(5 * time.Second)
	}
	victim := r.node(true)
	r.must(victim.Pause())
	r.flows("tasks after the leader was cut off")
	r.lasts(5 * time.Second)
	r.must(victim.Resume())
	r.lasts(10 * time.Second)
	r.flows("tasks after it came back")
	r.verdict("RabbitMQ cluster: a follower killed, the leader killed, one cut off", allowance{repeats: 4 * 3 * inFlight})
}

// node returns the leader of the queue, or, if leader is false, another node.
func (r *harness) node(leader bool) *servers.RabbitMQ {
	r.t.Helper()
	leads, err := r.brokers.Leader(r.t.Context(), queue, nil)
	check.OK(r.t, err)
	for _, n := range r.brokers.Nodes {
		if (n == leads) == leader {
			return n
		}
	}
	return leads
}
