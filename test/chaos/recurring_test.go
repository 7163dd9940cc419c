//go:build chaos

package chaos_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// between is the time between two runs of a recurring task. A whole second has one run of each.
const between = time.Second

// recur schedules recurring tasks, and enters each of their runs into the ledger as a task of
// its own. So a run that is missing is lost, and one that comes twice is a repeat.
func (r *harness) recur(runs int) {
	r.t.Helper()
	const tasks = 500
	over := make(chan struct{})
	close(over)
	r.load = &load{cancel: func() {}, done: over}
	first := r.clock.now().Add(3 * time.Second).Truncate(time.Millisecond)
	requests := make([]producer.Request, tasks)
	for i := range requests {
		due := first.Add(time.Duration(i) * between / time.Duration(tasks)).Truncate(time.Millisecond)
		requests[i] = producer.Request{
			Topic: "orders", ID: fmt.Sprint("s-", i), When: producer.At(due), Payload: fmt.Appendf(nil, "%0200d", i),
			Recurrence: &task.Recurrence{Every: between, Runs: runs, Each: true},
		}
		for n := range runs {
			planned := due.Add(time.Duration(n) * between)
			k := fleet.Key{Topic: "orders", ID: task.RunID(requests[i].ID, planned)}
			r.recorder.Ledger.Scheduled(k, planned, requests[i].Payload)
		}
	}
	for _, s := range r.recorder.Client.ScheduleMany(r.t.Context(), requests) {
		check.OK(r.t, s.Err)
	}
	r.await("runs to arrive", func() bool { return r.recorder.Ledger.Count() > 2*tasks })
}

// TestRecurringCrashPoints: a scanner crashes before and after it settles runs. Before, RabbitMQ
// has confirmed them; a repeat is explained, and marked.
func TestRecurringCrashPoints(t *testing.T) {
	crasher := buildCrasher(t)
	for _, step := range []string{"before advance 20", "after advance 20"} {
		t.Run(strings.ReplaceAll(step, " ", "-"), func(t *testing.T) {
			r := newHarness(t, options{scanners: 2})
			r.startBinary(crasher, 1, "DUEFLEET_TEST_CRASH="+step)
			victim := r.scanners[2]
			r.recur(20)
			select {
			case <-victim.Gone():
			case <-time.After(patience):
				t.Fatalf("the scanner did not end %s", step)
			}
			r.scanners = r.scanners[:2]
			r.verdict("recurring: scanner ends "+step, allowance{repeats: inFlight})
			if repeats := r.recorder.Ledger.Check().Duplicated; repeats == 0 && strings.HasPrefix(step, "before") {
				t.Error("no run came again: the scanner had none that was confirmed and not settled")
			}
		})
	}
}

// TestRecurringScannersKilled: kill -9 of one scanner after the other, at any step.
func TestRecurringScannersKilled(t *testing.T) {
	r := newHarness(t, options{})
	r.recur(30)
	const kills = 6
	r.killEach(kills, 1500*time.Millisecond)
	r.verdict("recurring: scanners kill -9, six times", allowance{repeats: kills * inFlight})
}

// TestRecurringRedisKilled: kill -9 and restart of Redis, twice.
func TestRecurringRedisKilled(t *testing.T) {
	r := newHarness(t, options{})
	r.recur(30)
	for range 2 {
		check.OK(t, r.redis.Kill())
		r.lasts(3 * time.Second)
		check.OK(t, r.redis.Restart(t.Context()))
		r.lasts(4 * time.Second)
	}
	r.verdict("recurring: Redis kill -9 and restart, twice", allowance{repeats: 2 * 3 * inFlight})
}

// TestRecurringWhileShardsChange: M changes twice, while each task is due each second.
func TestRecurringWhileShardsChange(t *testing.T) {
	r := newHarness(t, options{})
	r.recur(120)
	for _, shards := range []int{13, 3} {
		r.settings.Topics["orders"] = r.settings.Topics["orders"].With(fleet.Topic{"shards": shards})
		check.OK(t, fleet.WriteConfig(r.config, r.settings.Document()))
		r.await("the change to end", func() bool {
			s := r.status().Topic("orders")
			return s.Shards == shards && s.Phase == "stable"
		})
	}
	r.verdict("recurring: M 4 -> 13 -> 3", allowance{})
}
