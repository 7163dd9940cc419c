//go:build measure

package e2e_test

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestMeasureShardsUnderLoad is TestShardsUnderLoad with 200,000 stored tasks and 2,000
// new ones per second. A scanner is killed in each change. During a change, lateness may
// be at most three times as high as just before.
func TestMeasureShardsUnderLoad(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	const (
		lease = 10 * time.Second
		calm  = 30 * time.Second // before each change
		// settle is a pause before that. It isn't measured, and is longer than the leases
		// of the scanner killed in the previous change.
		settle = lease + 2*time.Second
	)
	servertest.Need(t, "consul")
	// This test remembers every task. A garbage collection keeps both cores of a small
	// machine busy for up to a second, and delays the consumer that takes the time.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(8 << 30))
	w := newConsulSource(t)
	lateness := &stopwatch{}
	w.tap = lateness.note
	pass := func(d time.Duration) { w.stays(d, func() bool { return true }) }
	w.reshardUnder(resharding{
		pending: 200_000, rate: 2000, lease: lease,
		before: func(m int) {
			lateness.begin(fmt.Sprintf("settling before the change to %d shards", m))
			pass(settle)
			lateness.begin(fmt.Sprintf("%s %d shards", stretchBefore, m))
			pass(calm)
		},
		changing: func(m int) { lateness.begin(fmt.Sprintf("%s %d shards", stretchChanging, m)) },
		after:    func() { lateness.begin("after") },
		kills:    func(int) bool { return true },
	})
	lateness.check(t)
}

// stopwatch collects the lateness of new tasks, by the period in which they were due.
type stopwatch struct {
	mu        sync.Mutex
	stretches []stretch
}

// These periods are compared; the shard count follows each name.
const (
	stretchBefore   = "before the change to"
	stretchChanging = "while changing to"
)

type stretch struct {
	name     string
	from     time.Time
	lateness fleet.Lateness
}

func (s *stopwatch) begin(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stretches = append(s.stretches, stretch{name: name, from: time.Now()})
}

func (s *stopwatch) note(d fleet.Delivery) {
	if !strings.HasPrefix(d.MessageId, "n-") {
		return
	}
	ms, _ := d.Headers["x-duefleet-due"].(int64)
	due := time.UnixMilli(ms)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.stretches) - 1; i >= 0; i-- {
		if due.After(s.stretches[i].from) {
			s.stretches[i].lateness = append(s.stretches[i].lateness, d.At.Sub(due))
			return
		}
	}
}

// check compares the lateness in all changes with the lateness just before them.
func (s *stopwatch) check(t *testing.T) {
	t.Helper()
	var first, before, changing fleet.Lateness
	for i := range s.stretches {
		st := &s.stretches[i]
		slices.Sort(st.lateness)
		t.Logf("lateness %s: p50 %s, p99 %s, max %s of %d tasks", st.name,
			st.lateness.At(0.5), st.lateness.At(0.99), st.lateness.At(1), len(st.lateness))
		switch {
		case strings.HasPrefix(st.name, stretchBefore):
			if first == nil {
				first = st.lateness
			}
			before = append(before, st.lateness...)
		case strings.HasPrefix(st.name, stretchChanging):
			changing = append(changing, st.lateness...)
		}
	}
	slices.Sort(before)
	slices.Sort(changing)
	was, is := before.At(0.99), changing.At(0.99)
	t.Logf("lateness p99 of all changes %s, before them %s: %.1f times; before the first %s: %.1f times",
		is, was, float64(is)/float64(was), first.At(0.99), float64(is)/float64(first.At(0.99)))
	if limit := 3 * was; is > limit {
		t.Errorf("lateness p99 while resharding is %s, want at most three times the one before, %s", is, limit)
	}
}
