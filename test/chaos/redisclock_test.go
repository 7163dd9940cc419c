//go:build chaos

package chaos_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// redisClock is Redis's clock, which can be set while Redis runs. The zero value is this
// machine's clock and can't be set.
type redisClock struct {
	path string // the file with the offset
	// ahead is the clock's offset for new tasks, judged its offset for checking arrivals.
	// They differ for a while after the clock is set back, because tasks claimed before
	// still arrive.
	ahead, judged atomic.Int64
}

// clockSettles is how long messages may still arrive that were claimed before Redis's
// clock was set.
const clockSettles = 5 * time.Second

func (c *redisClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// env returns the environment that gives a program this clock.
func (c *redisClock) env(t *testing.T, dir string) []string {
	t.Helper()
	library := filepath.Join(dir, "clock.so")
	cmd := exec.CommandContext(t.Context(), "cc", "-O2", "-shared", "-fPIC", "-o", library, filepath.Join("testdata", "clock.c")) //nolint:gosec // our own arguments
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build a clock that can be set: %v: %s", err, out)
	}
	c.path = filepath.Join(dir, "clock.offset")
	check.OK(t, os.WriteFile(c.path, make([]byte, 8), 0o600))
	return []string{"LD_PRELOAD=" + library, "CLOCK_OFFSET=" + c.path}
}

// setClock sets Redis's clock ahead of this machine's, and checks that it took effect.
func (r *harness) setClock(ahead time.Duration) {
	r.t.Helper()
	back := int64(ahead) < r.clock.ahead.Load()
	if !back {
		r.clock.judged.Store(int64(ahead))
	}
	file, err := os.OpenFile(r.clock.path, os.O_WRONLY, 0) // mapped by Redis: it must not be truncated
	r.must(err)
	_, err = file.Write(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second))) //nolint:gosec // two's complement
	r.must(err)
	r.must(file.Close())
	r.clock.ahead.Store(int64(ahead))
	now, err := r.client.Time(r.t.Context()).Result()
	r.must(err)
	if off := now.Sub(r.clock.now()).Abs(); off > 2*time.Second {
		r.t.Fatalf("Redis's clock is off by %s from the time it was set to: the fault had no effect", off)
	}
	if back {
		r.lasts(clockSettles)
		r.clock.judged.Store(int64(ahead))
	}
}

// TestRedisClockSet: Redis's clock is set while it runs. Nothing is lost, and nothing is
// early by that clock. Setting it ahead ends all leases, so tasks in flight are repeated
// and marked. After setting it back, older tasks wait until the clock reaches their due
// time again, and tasks scheduled by the new time keep arriving. In the end it is set
// right, which is ahead.
func TestRedisClockSet(t *testing.T) {
	for _, test := range []struct {
		name  string
		steps []time.Duration // offsets from this machine's clock
	}{
		{"an hour ahead", []time.Duration{time.Hour}},
		{"an hour back, and right again", []time.Duration{-time.Hour, 0}},
		{"10 s back, five times", []time.Duration{-10 * time.Second, -20 * time.Second, -30 * time.Second, -40 * time.Second,
			-50 * time.Second}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newHarness(t, options{setClock: true})
			r.begin()
			ahead, before := 0, time.Duration(0)
			for _, step := range test.steps {
				r.setClock(step)
				if step > before {
					ahead++
				}
				before = step
				n := r.recorder.Ledger.Count()
				r.await("tasks by the new clock", func() bool { return r.recorder.Ledger.Count() > n+10*loadBatch })
			}
			r.lasts(3 * time.Second)
			r.verdict("Redis: its clock set "+test.name, allowance{repeats: ahead * 3 * inFlight})
		})
	}
}
