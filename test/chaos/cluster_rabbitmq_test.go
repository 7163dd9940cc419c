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
		victim := r.node(queue, which == "the leader")
		r.must(victim.Kill())
		r.flows("tasks after " + which + " was killed")
		r.must(victim.Restart(t.Context()))
		r.lasts(5 * time.Second)
	}
	victim := r.node(queue, true)
	r.must(victim.Pause())
	r.flows("tasks after the leader was cut off")
	r.lasts(5 * time.Second)
	r.must(victim.Resume())
	r.lasts(10 * time.Second)
	r.flows("tasks after it came back")
	r.verdict("RabbitMQ cluster: a follower killed, the leader killed, one cut off", allowance{repeats: 4 * 3 * inFlight})
}

// TestClusterIntake: the leader of the intake's queue is killed, twice. Publishers and
// scanners go on with another node.
func TestClusterIntake(t *testing.T) {
	r := newHarness(t, options{brokers: true, intake: true})
	r.beginIntake()
	const kills = 2
	for range kills {
		victim := r.node(intakeQueue, true)
		r.must(victim.Kill())
		r.flows("tasks after the leader was killed")
		r.must(victim.Restart(t.Context()))
		r.lasts(5 * time.Second)
		r.flows("tasks after it came back")
	}
	r.intakeVerdict("intake, RabbitMQ cluster: the leader of its queue killed, twice",
		allowance{repeats: kills * (3*inFlight + redelivered), unmarked: kills * redelivered})
}

// node returns the leader of a queue, or, if leader is false, another node.
func (r *harness) node(queue string, leader bool) *servers.RabbitMQ {
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
