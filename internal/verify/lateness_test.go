package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/test/check"
)

// TestHistogram: each task counts in the first bucket that holds it, and lines are short.
func TestHistogram(t *testing.T) {
	t.Parallel()
	check.Equal(t, "buckets of nothing", len(buckets(nil)), 0)
	late := balance.Lateness{}
	count := func(d time.Duration) { late[balance.LatenessBucket(d)]++ }
	for ms := 1; ms <= 1000; ms++ {
		count(time.Duration(ms) * time.Millisecond)
	}
	count(time.Minute)
	text := chart(buckets(late))
	check.Equal(t, "the histogram", text, `
         1 ms         1 #
         2 ms         1 #
         4 ms         2 #
         8 ms         4 #
        16 ms         8 #
        32 ms        16 ##
        64 ms        32 ###
       128 ms        64 #####
       256 ms       128 ##########
       512 ms       256 ###################
      1024 ms       488 ####################################
      2048 ms         0
      4096 ms         0
      8192 ms         0
     16384 ms         0
     32768 ms         0
     65536 ms         1 #`)
	for line := range strings.Lines(text) {
		if len(line) > 61 {
			t.Errorf("%q is wider than 60 columns", line)
		}
	}
	count(1000 * time.Hour)
	if all := buckets(late); all[len(all)-1].UpToMillis != nil || !strings.HasSuffix(chart(all), "  later         1 #") {
		t.Errorf("%s", chart(all))
	}
}

// TestClock: samples bound each other, age widens them, and a set clock replaces them.
func TestClock(t *testing.T) {
	t.Parallel()
	c := newClock(nil)
	at := func(d time.Duration) time.Time { return c.begin.Add(d) }
	want := func(when, ahead, uncertain time.Duration) {
		t.Helper()
		now, within := c.now(at(when))
		check.Equal(t, "ahead", now.Sub(at(when)), ahead)
		check.Equal(t, "error", within, uncertain)
	}
	c.add(bounds{at(0), 10 * time.Millisecond, 20 * time.Millisecond})
	want(0, 15*time.Millisecond, 5*time.Millisecond)
	want(time.Second, 15*time.Millisecond, 6*time.Millisecond)
	c.add(bounds{at(time.Second), 18 * time.Millisecond, 40 * time.Millisecond})
	want(time.Second, 19500*time.Microsecond, 1500*time.Microsecond)
	c.add(bounds{at(2 * time.Second), -time.Second, -time.Second})
	want(2*time.Second, -time.Second, 0)
	check.Equal(t, "largest", c.worst, 6*time.Millisecond)
	// The third sample contradicts the second one only: both earlier ones are forgotten.
	c = newClock(nil)
	c.add(bounds{at(0), 0, 55 * time.Millisecond})
	c.add(bounds{at(0), 10 * time.Millisecond, 20 * time.Millisecond})
	c.add(bounds{at(0), 50 * time.Millisecond, 60 * time.Millisecond})
	want(0, 55*time.Millisecond, 5*time.Millisecond)
}
