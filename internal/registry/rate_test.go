package registry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// TestARatedTopicGoesOnAfterRedisClockWasSetBack: within the burst and an interval by
// Redis's clock, and at its rate.
func TestARatedTopicGoesOnAfterRedisClockWasSetBack(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	const rate, burst, interval = 20, 100 * time.Millisecond, time.Second / 20
	grant := func(want int) (int, time.Duration) {
		t.Helper()
		n, wait, err := c.Grant(c.t.Context(), "orders", rate, want, burst)
		check.OK(c.t, err)
		return n, wait
	}
	ahead := (c.now() + time.Hour.Milliseconds()) * 1000 // where it stood before
	check.OK(c.t, c.rdb.Set(c.t.Context(), c.rateKey(), fmt.Sprint(ahead), time.Minute).Err())
	began := c.now()
	granted, wait := grant(1)
	if granted != 0 || wait > burst+interval {
		t.Fatalf("granted %d, and the next in %s; want none, and the next within %s", granted, wait, burst+interval)
	}
	total := 0
	check.Until(t, "ten grants", func() bool {
		n, _ := grant(1)
		total += n
		passed := float64(c.now()-began) / 1000
		if most := (passed + burst.Seconds()) * rate; float64(total) > most+1 {
			t.Fatalf("%d granted in %.3f s at %d a second", total, passed, rate)
		}
		return total >= 10
	})
}

// TestUnusedRateIsGivenBackWhole: with the burst of a giver, which is shorter than the
// one that was granted by.
func TestUnusedRateIsGivenBackWhole(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	const rate, burst = 1, 10 * time.Second
	n, _, err := c.Grant(c.t.Context(), "orders", rate, 100, burst)
	check.OK(c.t, err)
	check.Equal(t, "granted", n, 10)
	before, err := c.rdb.Get(c.t.Context(), c.rateKey()).Float64()
	check.OK(c.t, err)
	_, _, err = c.Grant(c.t.Context(), "orders", rate, -3, 20*time.Millisecond)
	check.OK(c.t, err)
	after, err := c.rdb.Get(c.t.Context(), c.rateKey()).Float64()
	check.OK(c.t, err)
	check.Equal(t, "given back, in µs", int64(before-after), 3_000_000)
}

func TestTheRateIsSharedAndUnusedGrantsComeBack(t *testing.T) {
	t.Parallel()
	check.Until(t, "all is asked within a second of Redis's clock, which grants no more", func() bool {
		c := newSandbox(t)
		grant := func(want int) (int, time.Duration) {
			n, wait, err := c.Grant(c.t.Context(), "orders", 1, want, 10*time.Second)
			check.OK(c.t, err)
			return n, wait
		}
		began := c.now()
		burst, _ := grant(100)
		beyond, wait := grant(1)
		grant(-4)
		again, _ := grant(100)
		if c.now() >= began+time.Second.Milliseconds() {
			return false
		}
		check.Equal(t, "granted of the burst", burst, 10)
		check.Equal(t, "granted beyond it", beyond, 0)
		if wait <= 0 || wait > time.Second {
			t.Errorf("wait %s for one at one a second", wait)
		}
		check.Equal(t, "granted after giving 4 back", again, 4)
		return true
	})
}

// rateKey names the key of the topic's rate.
func (c *sandbox) rateKey() string { return c.prefix + ":rate:{orders}" }
