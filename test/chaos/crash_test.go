//go:build chaos

package chaos_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestCrashPoints: one scanner crashes at each step between claim and settle, and at each
// step of a move. Two others keep running.
func TestCrashPoints(t *testing.T) {
	crasher := buildCrasher(t)
	for _, p := range []struct {
		step    string
		repeats int  // the most repeats that a crash at this step explains
		move    bool // the step belongs to a change of M
	}{
		{"after claim 1", 0, false}, // nothing was published, so nothing may be repeated
		{"before claim 20", inFlight, false},
		{"after claim 20", inFlight, false},     // earlier claims may not be settled.
		{"after claim 20 1ms", inFlight, false}, // perhaps published in part.
		{"after claim 20 4ms", inFlight, false}, // published, and perhaps confirmed.
		{"before settle 10", inFlight, false},   // confirmed, but not settled in Redis.
		{"after settle 10", inFlight, false},    // the next batches are in flight.
		{"before release 3", inFlight, false},
		{"after release 3", inFlight, false},
		{"before export 2", inFlight, true},
		{"after export 2", inFlight, true},
		{"before import 2", inFlight, true},
		{"after import 2", inFlight + moveBatch, true}, // in two shards until the export expires
		{"before scan_pass 2", inFlight, true},
		{"after scan_pass 2", inFlight, true},
		{"before mark_clean 1", inFlight, true},
		{"after mark_clean 1", inFlight, true},
		{"before cas_placement 1", inFlight, true},
		{"after cas_placement 1", inFlight, true},
	} {
		t.Run(strings.ReplaceAll(p.step, " ", "-"), func(t *testing.T) {
			o := options{scanners: 2}
			if strings.Contains(p.step, "release") { // a scanner releases tasks only if messages come back
				o.exchange, o.topic = true, fleet.Topic{"max_attempts": 1000, "backoff": map[string]any{"min": "100ms",
					"max": "300ms"}}
			}
			r := newHarness(t, o)
			r.startBinary(crasher, 1, "DUEFLEET_TEST_CRASH="+p.step)
			victim := r.scanners[2]
			r.begin()
			if o.exchange {
				r.broker(func(ch *amqp.Channel) error { return ch.QueueUnbind(queue, "orders.due", "orders", nil) })
			}
			others := r.scanners[:2]
			if p.move {
				r.pause(others) // otherwise they might reach the step first
				r.far(30 * time.Second)
				r.settings.Topics["orders"] = r.settings.Topics["orders"].With(fleet.Topic{"shards": 13})
				check.OK(t, fleet.WriteConfig(r.config, r.settings.Document()))
			}
			select {
			case <-victim.Gone():
			case <-time.After(patience):
				t.Fatalf("the scanner did not end %s", p.step)
			}
			if p.move {
				r.resume(others)
			}
			if o.exchange {
				r.bind()
			}
			r.scanners = others
			r.lasts(2 * time.Second)
			if p.move {
				r.await("the change to end", func() bool {
					s := r.status().Topic("orders")
					return s.Shards == 13 &&
						s.Phase == "stable"
				})
				r.far(time.Second) // these replace the moved tasks
			}
			r.verdict("scanner: ends "+p.step, allowance{repeats: p.repeats})
		})
	}
}

func (r *harness) pause(scanners []*fleet.Scanner) {
	r.t.Helper()
	for _, s := range scanners {
		check.OK(r.t, s.Pause())
	}
}

func (r *harness) resume(scanners []*fleet.Scanner) {
	r.t.Helper()
	for _, s := range scanners {
		check.OK(r.t, s.Resume())
	}
}

// far schedules four thousand tasks, with the same IDs in every call. They are due too
// late to be delivered instead of moved: movers leave out tasks that are due soon.
func (r *harness) far(in time.Duration) {
	r.t.Helper()
	orders, due := make([]fleet.Order, 4000), time.Now().Add(in)
	for i := range orders {
		orders[i] = order("orders", fmt.Sprintf("far-%d", i), due)
	}
	check.OK(r.t, r.recorder.Schedule(r.t.Context(), orders...))
}

// moveBatch is roughly the number of tasks in one step of a move.
const moveBatch = 400

func buildCrasher(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "crasher")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "chaos", "-o", binary, "./crasher") //nolint:gosec // our own arguments
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the scanner that crashes: %v: %s", err, out)
	}
	return binary
}
