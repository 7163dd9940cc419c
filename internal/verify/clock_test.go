package verify

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

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
