package shard

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// TestHeardGoesByTheSoonestAnswer: answers are heard late by as much as the process and the
// pipeline are busy. The node's clock is a second ahead.
func TestHeardGoesByTheSoonestAnswer(t *testing.T) {
	t.Parallel()
	c := (&Store{}).NewConvoy()
	// hear reads the node's clock at an instant, in a call that began 8 ms before, and hears it
	// late. It returns by how much Heard is wrong.
	at := c.Began
	hear := func(node string, ahead, late time.Duration) time.Duration {
		at = at.Add(time.Millisecond)
		return c.Heard(node, at.Round(0).Add(ahead), at.Add(-8*time.Millisecond), at.Add(late)).Sub(at)
	}
	const ms = time.Millisecond
	for _, step := range []struct {
		name              string
		node              string
		pause             time.Duration // before the answer
		ahead, late, want time.Duration
	}{
		{"the first answer is all that is known", "a", 0, time.Second, 5 * ms, 5 * ms},
		{"a sooner one", "a", 0, time.Second, 2 * ms, 2 * ms},
		{"a later one goes by it", "a", 0, time.Second, 30 * ms, 2 * ms},
		{"another node has a clock of its own", "b", 0, -time.Second, 4 * ms, 4 * ms},
		{"the soonest counts for a while", "a", 3 * time.Second, time.Second, 9 * ms, 2 * ms},
		{"and no longer: clocks drift", "a", 3 * time.Second, time.Second, 7 * ms, 7 * ms},
		{"a clock that was set ahead", "a", 0, time.Minute, 3 * ms, 3 * ms},
		{"and back: not before the call began", "a", 0, time.Second, 3 * ms, -8 * ms},
		{"until that is forgotten", "a", 3 * time.Second, time.Second, 3 * ms, -8 * ms},
		{"as it is", "a", 3 * time.Second, time.Second, 3 * ms, 3 * ms},
	} {
		at = at.Add(step.pause)
		check.Equal(t, step.name, hear(step.node, step.ahead, step.late), step.want)
	}
}

// TestCallsThatGatherShareAPipeline: what is gathered for a node at the end of a slot goes there
// together, also what several topics add. Without Hurry that is an hour away.
func TestCallsThatGatherShareAPipeline(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	nodes := map[string][]Shard{}
	for i := range 10 {
		for at := range 2 {
			s := c.store.Topic(fmt.Sprint("t", i)).Shard(at)
			_, err := s.Settle(t.Context(), []Lease{{ID: "a", Token: "-1"}}) // each node has the script then
			check.OK(t, err)
			nodes[s.Node(t.Context())] = append(nodes[s.Node(t.Context())], s)
		}
	}
	var sent atomic.Int64
	faults.Before(c.rdb, func(faults.Request) { sent.Add(1) })
	convoy := c.store.NewConvoy()
	convoy.Slot = time.Hour
	errs := make(chan error, 20)
	for node, shards := range nodes {
		for _, s := range shards {
			convoy.Gather(node, func() {
				one := Settlement{Settle: []Lease{{ID: "a", Token: "-1"}}}
				convoy.Settle(s, node, one, func(all Settled) { errs <- all.Settle })
			})
		}
	}
	check.Equal(t, "sent before the end of the slot", sent.Load(), 0)
	for node := range nodes {
		convoy.Hurry(node)
	}
	for range cap(errs) {
		check.OK(t, check.Receive(t, "a settlement", errs))
	}
	convoy.Wait()
	check.Equal(t, "round trips", sent.Load(), int64(len(nodes)))
}
