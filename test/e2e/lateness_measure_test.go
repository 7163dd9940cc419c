//go:build measure

package e2e_test

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/fleet"
)

// TestMeasureLateness: at a rate that any machine can deliver, tasks leave when they are
// due, not at the next poll.
func TestMeasureLateness(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.start(3)
	w.consume("orders.due")
	w.schedule(orders("orders", "o", 200, time.Now().Add(2*time.Second), 5*time.Second, 0)...)
	r := w.finish()
	t.Logf("p50 %s, p99 %s, max %s", r.Lateness.At(0.5), r.Lateness.At(0.99), r.Lateness.At(1))
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if p50, p99 := r.Lateness.At(0.5), r.Lateness.At(0.99); p50 > 250*time.Millisecond || p99 > time.Second {
		t.Errorf("lateness p50 %s, p99 %s; want at most 250ms and 1s", p50, p99)
	}
}

// TestMeasureExactlyOnce: 20,000 tasks of two topics, due over ten seconds, are on time.
// Some were cancelled, rescheduled or replaced.
func TestMeasureExactlyOnce(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	w := newPair(t)
	w.start(3)
	w.consume("orders.due", "invoices.due")
	start := time.Now().Truncate(time.Millisecond).Add(20 * time.Second)
	all := ordersOfPair(20_000, start)
	w.schedule(all...)
	w.changeSome(all)
	w.stays(time.Until(start), func() bool { return true })
	r := w.finish()
	t.Logf("%d promised, %d optional, lateness p50 %s, p99 %s, max %s", r.Promised, r.Optional,
		r.Lateness.At(0.5), r.Lateness.At(0.99), r.Lateness.At(1))
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if p99 := r.Lateness.At(0.99); p99 > time.Second {
		t.Errorf("p99 of the lateness is %s, want at most 1s", p99)
	}
}

// TestMeasureMissingExchange: a topic with a missing exchange doesn't make another topic
// late.
func TestMeasureMissingExchange(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	w := newGoodAndBad(t)
	w.awaitCount(400)
	r := w.recorder.Ledger.Check()
	if p99 := r.Lateness.At(0.99); p99 > time.Second {
		t.Errorf("p99 of the good topic's lateness is %s, want at most 1s", p99)
	}
}

// TestMeasureTerminate: SIGTERM under load ends scanners within ten seconds.
func TestMeasureTerminate(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.settings.ShutdownTimeout = "10s"
	w.write()
	w.start(2)
	w.consume("orders.due")
	w.schedule(orders("orders", "o", 40_000, time.Now().Add(2*time.Second), time.Millisecond, 500)...)
	w.awaitCount(1001)
	begin := time.Now()
	w.stop()
	took := time.Since(begin)
	left := w.status().Topic("orders")
	t.Logf("ended after %s with %d tasks left", took, left.Pending)
	if took > 10*time.Second {
		t.Errorf("it took %s to end, want at most the shutdown_timeout of 10s", took)
	}
	if left.Pending == 0 {
		t.Error("no task was left: the scanners ended without load")
	}
}

// TestMeasureRate: the rate of a topic is the rate of the whole fleet, within a tenth.
func TestMeasureRate(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	const rate, settle, seconds = 200, 2 * time.Second, 6
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", fleet.Topic{"rate": rate})})
	w.start(3)
	w.consume("orders.due")
	w.schedule(orders("orders", "o", rate*12, time.Now().Add(time.Second), time.Millisecond, 0)...)
	w.arrive("the last task")

	w.mu.Lock()
	defer w.mu.Unlock()
	from := w.messages.first().At.Add(settle)
	n := 0
	for d := range w.messages.all() {
		if !d.At.Before(from) && d.At.Before(from.Add(seconds*time.Second)) {
			n++
		}
	}
	got := float64(n) / seconds
	t.Logf("%.1f tasks a second", got)
	if got > rate*1.1 || got < rate*0.9 {
		t.Errorf("%.1f tasks a second, want %d within a tenth", got, rate)
	}
}

// TestMeasureSettings: settings written to Consul are in force in every scanner within a
// second.
func TestMeasureSettings(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	testSettings(t, func(change fleet.Topic, took time.Duration) {
		if took > time.Second {
			t.Errorf("%v was in force after %s, want it within a second", change, took)
		}
	})
}
