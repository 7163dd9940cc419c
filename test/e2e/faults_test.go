package e2e_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/fleet"
)

// TestKill: scanners that are killed in the middle of their work lose nothing.
// What they had in flight may arrive twice, and says so; nothing else does. The
// lease is long enough for a busy machine not to outlast it.
func TestKill(t *testing.T) {
	t.Parallel()
	const tasks, window, kills = 20_000, 200, 3
	w := newWorld(t, map[string]fleet.Topic{
		"orders": fleet.DeclaredTopic("orders", fleet.Topic{"window": window, "batch": 100, "lease": "15s"}),
	})
	w.start(3)
	w.consume("orders.due")
	all := orders("orders", "o", tasks, time.Now().Add(2*time.Second), time.Second, 1000)
	w.schedule(all...)
	for i := range kills {
		w.await("enough to kill a scanner at", func() bool {
			return w.recorder.Ledger.Count() > (2*i+1)*tasks/10
		})
		if err := w.scanners[i].Kill(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := w.scanners[i].Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	r := w.finish()
	t.Logf("%d arrived twice, %d marked as redelivered", r.Duplicated, r.Redelivered)
	if r.Duplicated > kills*window {
		t.Errorf("%d duplicates, want at most the %d that %d scanners had in flight", r.Duplicated, kills*window, kills)
	}
	if r.Redelivered == 0 {
		t.Error("no task was claimed again: the scanners were killed while idle")
	}
	w.checkRepeats()
	r.Duplicated = 0
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

// checkRepeats: of all messages of one version of a task, each but the first is
// marked as redelivered.
func (w *world) checkRepeats() {
	w.t.Helper()
	type version struct {
		topic, id string
		due       any
	}
	seen := map[version]bool{}
	for _, d := range w.messages {
		k := version{d.Type, d.MessageId, d.Headers["x-duefleet-due"]}
		if seen[k] && d.Headers["x-duefleet-redelivered"] != true && !d.Redelivered {
			w.t.Errorf("ID %q arrived again without x-duefleet-redelivered", d.MessageId)
		}
		seen[k] = true
	}
}

// TestTerminate: SIGTERM under load ends a scanner with 0 within
// shutdown_timeout, leaves nothing leased, and makes nothing arrive twice.
func TestTerminate(t *testing.T) {
	t.Parallel()
	const tasks = 40_000
	w := newWorld(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.start(2)
	w.consume("orders.due")
	w.schedule(orders("orders", "o", tasks, time.Now().Add(2*time.Second), time.Millisecond, 500)...)
	w.await("the load", func() bool { return w.recorder.Ledger.Count() > 1000 })

	begin := time.Now()
	w.stop()
	took := time.Since(begin)
	left := w.status().Topic("orders")
	t.Logf("ended after %s with %d tasks left", took, left.Pending)
	if took > 10*time.Second {
		t.Errorf("it took %s to end, want at most the shutdown_timeout of 10s", took)
	}
	if left.Leased != 0 {
		t.Errorf("%d tasks are still leased, want none", left.Leased)
	}
	if left.Pending == 0 {
		t.Error("nothing was left: it ended without load")
	}
	w.start(1)
	r := w.finish()
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if r.Redelivered != 0 {
		t.Errorf("%d tasks are marked as redelivered, want none", r.Redelivered)
	}
}

// TestRate: a topic's rate is that of the whole fleet.
func TestRate(t *testing.T) {
	t.Parallel()
	const rate, settle, seconds = 200, 2 * time.Second, 6
	w := newWorld(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", fleet.Topic{"rate": rate})})
	var mu sync.Mutex
	var arrivals []time.Time
	w.start(3)
	w.tap = func(d fleet.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		arrivals = append(arrivals, d.At)
	}
	w.consume("orders.due")
	w.schedule(orders("orders", "o", rate*12, time.Now().Add(time.Second), time.Millisecond, 0)...)
	w.await("the last task", func() bool { return w.recorder.Ledger.Missing() == 0 })

	mu.Lock()
	defer mu.Unlock()
	from := arrivals[0].Add(settle)
	n := 0
	for _, at := range arrivals {
		if !at.Before(from) && at.Before(from.Add(seconds*time.Second)) {
			n++
		}
	}
	got := float64(n) / seconds
	t.Logf("%.1f tasks a second", got)
	// The race detector makes a busy machine too slow for any rate, though
	// never too fast.
	if got > rate*1.1 || got < rate*0.9 && !raceEnabled {
		t.Errorf("%.1f tasks a second, want %d within a tenth", got, rate)
	}
	if err := w.recorder.Ledger.Check().Err(); err != nil {
		t.Error(err)
	}
}
