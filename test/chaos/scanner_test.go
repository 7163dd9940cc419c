//go:build chaos

package chaos_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// inFlight is the largest number of tasks that one scanner has in flight: twice its
// window.
const inFlight = 1000

// TestScannersKilled: kill -9 of running scanners.
func TestScannersKilled(t *testing.T) {
	r := newHarness(t, options{})
	r.begin()
	const kills = 5
	r.killEach(kills, 2*time.Second)
	r.verdict("scanner: kill -9, five times", allowance{repeats: kills * inFlight})
}

// TestScannerStopped: SIGSTOP for longer than the lease. Other scanners deliver the tasks
// that the stopped one had claimed. After SIGCONT it settles nothing that it no longer
// holds.
func TestScannerStopped(t *testing.T) {
	r := newHarness(t, options{})
	r.begin()
	s := r.scanners[0]
	check.OK(t, s.Pause())
	r.lasts(leaseTime + 4*time.Second)
	check.OK(t, s.Resume())
	r.lasts(3 * time.Second)
	r.verdict("scanner: SIGSTOP longer than the lease", allowance{repeats: inFlight})
}

// TestScannersTerminated: SIGTERM under load. No task waits for its lease to expire, and
// nothing arrives twice.
func TestScannersTerminated(t *testing.T) {
	r := newHarness(t, options{})
	r.begin()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, s := range r.scanners {
		began := time.Now()
		code, err := s.Stop(ctx)
		if took := time.Since(began); err != nil || code != 0 || took > 10*time.Second {
			t.Errorf("stop: code %d after %s, %v; want 0 within shutdown_timeout", code, took, err)
		}
		r.again(s)
	}
	r.verdict("scanner: SIGTERM, one after the other", allowance{})
	if r.arrivals.gap > leaseTime/2 {
		t.Errorf("nothing arrived for %s: a task waited for its lease to expire", r.arrivals.gap)
	}
}

// TestScannersTerminatedWithoutRedis: SIGTERM while Redis is down. Tasks in flight are
// settled once Redis is back, within shutdown_timeout.
func TestScannersTerminatedWithoutRedis(t *testing.T) {
	r := newHarness(t, options{})
	r.begin()
	r.must(r.redis.Kill())
	began := time.Now()
	var stopping sync.WaitGroup
	for i := range r.scanners {
		stopping.Go(func() { r.terminate(i) })
	}
	r.lasts(3 * time.Second)
	r.must(r.redis.Restart(t.Context()))
	stopping.Wait()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stopping took %s, want it within shutdown_timeout", took)
	}
	for _, s := range r.scanners {
		r.again(s)
	}
	r.verdict("scanner: SIGTERM while Redis is away", allowance{repeats: loadBatch, unmarked: loadBatch})
}

// TestManyTopics: the fleet serves a hundred topics.
func TestManyTopics(t *testing.T) {
	more, names := map[string]fleet.Topic{}, []string{}
	for i := range 100 {
		name := fmt.Sprintf("topic-%02d", i)
		more[name] = fleet.Topic{"shards": 2, "workers": 2, "exchange": "orders", "routing_key": "orders.due",
			"declare": map[string]any{
				"type": "direct", "queue": queue, "queue_type": "classic",
			}}
		names = append(names, name)
	}
	r := newHarness(t, options{scanners: 2, more: more})
	r.begin(names...)
	r.lasts(10 * time.Second)
	r.verdict("a hundred topics", allowance{})
}
