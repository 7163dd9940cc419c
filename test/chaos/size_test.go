//go:build chaos

package chaos_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestAMillionAtOnce: a million tasks are due at the same instant. Memory stays bounded,
// no lease expires, and another topic is served meanwhile.
func TestAMillionAtOnce(t *testing.T) {
	const many, batch = 1_000_000, 500
	r := newHarness(t, options{
		redisArgs: []string{"--appendfsync", "everysec"},
		topic:     fleet.Topic{"lease": "30s"},
		more:      map[string]fleet.Topic{"invoices": nil},
	})
	r.consume("invoices.due")
	due := time.Now().Add(time.Minute).Truncate(time.Millisecond)
	var g errgroup.Group
	g.SetLimit(4)
	for from := 0; from < many; from += batch {
		g.Go(func() error {
			orders := make([]fleet.Order, batch)
			for i := range orders {
				orders[i] = order("orders", fmt.Sprintf("m-%d", from+i), due)
			}
			return r.recorder.Schedule(t.Context(), orders...)
		})
	}
	check.OK(t, g.Wait())
	if time.Now().After(due) {
		t.Fatal("this machine takes longer than a minute to schedule a million tasks")
	}
	r.begin("invoices")
	before := r.arrivals.since("invoices", 0).At(0.99)
	r.lasts(time.Until(due))
	n := r.arrivals.count("invoices")
	r.within(10*time.Minute, "a million tasks", func() bool { return r.arrivals.count("orders") >= many })
	took := time.Since(due)
	during := r.arrivals.since("invoices", n).At(0.99)
	t.Logf("a million tasks took %s, %.0f/s; lateness p99 of the other topic %s, %s before", took.Round(time.Second),
		many/took.Seconds(), during, before)
	// All processes share two cores here; ten seconds is a tenth of the time for the
	// million.
	if during > 10*time.Second {
		t.Errorf("the other topic's lateness is p99 %s meanwhile", during)
	}
	r.checkMemory()
	r.verdict("a million tasks due at one instant", allowance{})
}

// TestLargestPayloads: payloads at the size limit, all due at once. Their number is
// within one scanner's window, but their size is beyond its memory.
func TestLargestPayloads(t *testing.T) {
	r := newHarness(t, options{scanners: 1, redisArgs: []string{"--appendfsync", "everysec"},
		topic: fleet.Topic{"lease": "30s", "window": 2000}})
	r.begin()
	due := time.Now().Add(5 * time.Second).Truncate(time.Millisecond)
	for i := range 1500 {
		o := order("orders", fmt.Sprintf("large-%d", i), due)
		o.Payload = bytes.Repeat([]byte{byte(i)}, task.DefaultMaxPayload)
		check.OK(t, r.recorder.Schedule(t.Context(), o))
	}
	r.await("the large tasks to be delivered", func() bool {
		return r.status().Topic("orders").Backlog < 1000 &&
			time.Now().After(due)
	})
	r.checkMemory()
	r.verdict("1,500 payloads of 256 KiB due at one instant", allowance{})
}

// checkMemory checks that no scanner's memory ever exceeded a limit.
func (r *harness) checkMemory() {
	r.t.Helper()
	const most = 150 << 10
	for _, s := range r.scanners {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
		check.OK(r.t, err)
		_, peak, _ := strings.Cut(string(status), "VmHWM:")
		kib, err := strconv.Atoi(strings.Fields(peak)[0])
		check.OK(r.t, err)
		if kib > most {
			r.t.Errorf("a scanner used %d KiB, want at most %d", kib, most)
		}
	}
}
