package check

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgressCountsFromTheLastSign: each sign of progress restarts the limit. Without
// progress the wait fails at the limit.
func TestProgressCountsFromTheLastSign(t *testing.T) {
	t.Parallel()
	const step = 50 * time.Second
	count := func(until time.Duration) (func() int, func() time.Duration) {
		began := time.Now()
		since := func() time.Duration { return time.Since(began) }
		return func() int { return int(min(since(), until) / step) }, since
	}
	t.Run("steps", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n, _ := count(time.Hour)
			if err := progress(t.Context(), n, func() bool { return n() == 20 }); err != nil {
				t.Errorf("gave up although there was progress every 50 s: %v", err)
			}
		})
	})
	t.Run("standstill", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n, since := count(3 * step)
			err := progress(t.Context(), n, func() bool { return false })
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want context.DeadlineExceeded", err)
			}
			if got := since(); got < 3*step+Hang || got > 3*step+Hang+time.Second {
				t.Errorf("gave up after %s, want 60 s after the last step at 150 s", got)
			}
		})
	})
}

// TestProgressIsOverAtOnce: a condition that already holds needs no tick.
func TestProgressIsOverAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := progress(ctx, func() int { return 0 }, func() bool { return true }); err != nil {
		t.Error(err)
	}
}
