//go:build measure && linux

package e2e_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// few and most are the compared shard counts: the default and the maximum.
const (
	few  = 4
	most = 4096
)

// ofShards starts one scanner with a topic of that many shards. It waits until the
// scanner has shown the placement to each shard.
func ofShards(t *testing.T, shards int) *fixture {
	t.Helper()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", fleet.Topic{"shards": shards})})
	w.start(1)
	w.consume("orders.due")
	w.pass(10 * time.Second)
	return w
}

// pass waits for d.
func (w *fixture) pass(d time.Duration) { w.stays(d, func() bool { return true }) }

// TestMeasureIdleShards: an idle topic costs a scanner and Redis almost nothing, whatever
// its shard count.
func TestMeasureIdleShards(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	const span, allowed = 20 * time.Second, 5.0 // % of a core
	for _, shards := range []int{few, most / 2, most} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			w := ofShards(t, shards)
			scanner, redis := processTime(t, w.scanners[0].PID()), w.redisTime()
			w.pass(span)
			share := func(used time.Duration) float64 { return 100 * used.Seconds() / span.Seconds() }
			own, its := share(processTime(t, w.scanners[0].PID())-scanner), share(w.redisTime()-redis)
			t.Logf("M = %d, idle: scanner %.2f %% of a core, redis %.2f %%", shards, own, its)
			if own > allowed || its > allowed {
				t.Errorf("%d idle shards cost a scanner %.2f %% and Redis %.2f %% of a core, want at most %v", shards, own, its,
					allowed)
			}
		})
	}
}

// TestMeasureLatenessOfManyShards: tasks are as punctual with many shards as with few.
func TestMeasureLatenessOfManyShards(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	const rate, seconds = 200, 20
	p99 := map[int]time.Duration{}
	for _, shards := range []int{few, most} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			w := ofShards(t, shards)
			w.schedule(orders("orders", "o", rate*seconds, time.Now().Add(3*time.Second), seconds*time.Second, 200)...)
			w.arrive("all tasks")
			r := w.recorder.Ledger.Check()
			p99[shards] = r.Lateness.At(0.99)
			t.Logf("M = %d, %d tasks a second: p50 %s, p99 %s, max %s", shards, rate, r.Lateness.At(0.5), p99[shards],
				r.Lateness.At(1))
			if err := r.Err(); err != nil {
				t.Error(err)
			}
		})
	}
	if p99[most] > 2*p99[few]+10*time.Millisecond {
		t.Errorf("p99 of the lateness with %d shards is %s, with %d it is %s", most, p99[most], few, p99[few])
	}
}

// TestMeasureDrainOfManyShards measures how fast tasks due at one instant are delivered.
func TestMeasureDrainOfManyShards(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	const tasks = 40_000
	for _, shards := range []int{few, most} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			w := ofShards(t, shards)
			due := time.Now().Add(10 * time.Second)
			w.schedule(orders("orders", "o", tasks, due, time.Millisecond, 200)...)
			if left := time.Until(due); left <= 0 {
				t.Fatalf("storing took %s too long", -left)
			}
			w.arrive("all tasks")
			r := w.recorder.Ledger.Check()
			t.Logf("M = %d: %d tasks in %s, %.0f a second", shards, tasks, r.Last.Sub(due), tasks/r.Last.Sub(due).Seconds())
			if err := r.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// processTime returns the CPU time that a process has used, in steps of 10 ms.
func processTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check.OK(t, err)
	// The name, in brackets, may contain anything, so count from its end.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	const user, system, clockTick = 11, 12, 10 * time.Millisecond
	var ticks int64
	for _, at := range []int{user, system} {
		n, err := strconv.ParseInt(fields[at], 10, 64)
		check.OK(t, err)
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}

// redisTime returns the CPU time of Redis's main thread, which executes the commands.
func (w *fixture) redisTime() time.Duration {
	w.t.Helper()
	info, err := w.redis.Info(w.t.Context(), "cpu").Result()
	check.OK(w.t, err)
	var total float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_user_main_thread" && name != "used_cpu_sys_main_thread" {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		check.OK(w.t, err)
		total += seconds
	}
	return time.Duration(total * float64(time.Second))
}
