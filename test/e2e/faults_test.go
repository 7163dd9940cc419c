package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestKill: killed scanners lose nothing. Only tasks that they had in flight may arrive
// twice, and the repeats are marked. The lease is long enough for a busy machine.
func TestKill(t *testing.T) {
	t.Parallel()
	const tasks, window, kills = 20_000, 100, 3
	w := newFixture(t, map[string]fleet.Topic{
		"orders": fleet.DeclaredTopic("orders", fleet.Topic{"window": window, "batch": 100, "lease": "15s"}),
	})
	w.pause(true)
	w.start(3)
	w.consume("orders.due")
	w.schedule(orders("orders", "o", tasks, time.Now(), time.Second, 1000)...)
	w.pause(false)
	for i := range kills {
		w.awaitCount((2*i+1)*tasks/10 + 1)
		check.OK(t, w.scanners[i].Kill())
		check.OK(t, w.scanners[i].Start(check.Context(t)))
	}
	r := w.finish()
	t.Logf("%d arrived twice, %d marked as redelivered", r.Duplicated, r.Redelivered)
	if most := kills * 2 * window; r.Duplicated > most {
		t.Errorf("%d duplicates, want at most the %d that %d scanners had in flight", r.Duplicated, most, kills)
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

// checkRepeats checks that each message of a version except the first is marked as
// redelivered.
func (w *fixture) checkRepeats() {
	w.t.Helper()
	type version struct {
		topic, id string
		due       any
	}
	seen := map[version]bool{}
	for d := range w.messages.all() {
		k := version{d.Type, d.MessageId, d.Headers["x-duefleet-due"]}
		if seen[k] && d.Headers["x-duefleet-redelivered"] != true && !d.Redelivered {
			w.t.Errorf("ID %q arrived again without x-duefleet-redelivered", d.MessageId)
		}
		seen[k] = true
	}
}

// TestTerminate: SIGTERM under load ends a scanner with exit code 0. No task stays
// leased, and none arrives twice.
func TestTerminate(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	w.pause(true)
	w.start(2)
	w.consume("orders.due")
	for round := 1; w.terminate(round) == 0; round++ {
		t.Logf("no task was left in round %d: the scanners ended without load", round)
		w.pause(true)
		w.start(2)
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

// terminate stops the scanners of a paused topic soon after the topic is resumed, and
// returns how many tasks are left.
func (w *fixture) terminate(round int) int64 {
	w.t.Helper()
	const tasks, first = 20_000, 1000
	w.schedule(orders("orders", fmt.Sprintf("o%d", round), tasks, time.Now(), time.Millisecond, 500)...)
	w.pause(false)
	w.awaitCount(w.recorder.Ledger.Count() + first)
	w.stop()
	left := w.status().Topic("orders")
	w.t.Logf("ended with %d tasks left", left.Pending)
	if left.Leased != 0 {
		w.t.Errorf("%d tasks are still leased, want none", left.Leased)
	}
	return left.Pending
}

// TestRate: a topic's rate limits the whole fleet: three scanners together don't deliver
// faster.
func TestRate(t *testing.T) {
	t.Parallel()
	const rate, tasks = 200, 1200
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", fleet.Topic{"rate": rate})})
	w.pause(true)
	w.start(3)
	w.consume("orders.due")
	w.schedule(orders("orders", "o", tasks, time.Now(), time.Millisecond, 0)...)
	clock := func() time.Time { return servertest.RedisNow(t, w.redis) }
	// Measure with Redis's clock, which limits the rate, from before the first task can
	// leave until after the last one did.
	begin := clock()
	w.pause(false)
	w.arrive("the last task")
	took := clock().Sub(begin)
	got := tasks / took.Seconds()
	t.Logf("%.1f tasks a second", got)
	if got > rate*1.1 {
		t.Errorf("%.1f tasks a second, want %d at most, within a tenth", got, rate)
	}
	if err := w.recorder.Ledger.Check().Err(); err != nil {
		t.Error(err)
	}
}
