//go:build chaos

package chaos_test

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/fleet"
)

// everything is an allowance for any number of repeats, for connections that are reset
// again and again.
const everything = 1_000_000

// slowness lists the ways in which a network can be bad without being down.
var slowness = []struct {
	name    string
	topic   fleet.Topic
	repeats int
	spoil   func(n *network)
}{
	{"latency of 200 ms each way", nil, 0, func(n *network) {
		n.spoil("slow down", "latency", "downstream", map[string]any{"latency": 200, "jitter": 50})
		n.spoil("slow up", "latency", "upstream", map[string]any{"latency": 200, "jitter": 50})
	}},
	{"100 KB/s", fleet.Topic{"batch": 100, "window": 200}, inFlight, func(n *network) {
		n.spoil("narrow down", "narrow", "downstream", map[string]any{"rate": 100_000})
		n.spoil("narrow up", "narrow", "upstream", map[string]any{"rate": 100_000})
	}},
	{"one in a hundred packets ends its connection", nil, everything, func(n *network) {
		n.spoil("closing", "closing", "downstream", map[string]any{"chance": 0.01})
	}},
}

// checkSlow checks for each slowness that nothing is lost, and that the fault had an
// effect.
func checkSlow(t *testing.T, server string, o options, to func(*harness) *network) {
	for _, f := range slowness {
		t.Run(f.name, func(t *testing.T) {
			o.topic = f.topic
			r, before := newHarness(t, o), closed.Load()
			r.begin()
			f.spoil(to(r))
			r.lasts(8 * time.Second)
			to(r).fix()
			r.checkMemory()
			r.verdict(server+": "+f.name, allowance{repeats: f.repeats})
			late := r.recorder.Ledger.Check().Lateness.At(0.99)
			if ended := closed.Load() - before; late < 100*time.Millisecond && ended == 0 {
				t.Errorf("lateness p99 is %s and no connection ended: the fault had no effect", late)
			} else {
				t.Logf("%d connections ended", ended)
			}
		})
	}
}
