package scanner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestRetryDelaysStayWithinTheirBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Minute)).Draw(t, "min"))
		most := least + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "more"))
		attempt := rapid.IntRange(1, 2000).Draw(t, "attempt")
		d := retryDelay(least, most, attempt)
		if d > most || d < least-least/5-1 {
			t.Fatalf("attempt %d: %v, not within a fifth of %v to %v", attempt, d, least, most)
		}
		if full := exponential(least, most, attempt-1); attempt > 70 && full != most {
			t.Fatalf("attempt %d: %v, not yet %v", attempt, full, most)
		}
	})
}

func TestDelaysDouble(t *testing.T) {
	t.Parallel()
	for attempt, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if got := exponential(time.Second, 10*time.Second, attempt); got != want*time.Second {
			t.Errorf("after %d tries: %v, want %v", attempt, got, want*time.Second)
		}
	}
}

func TestABackoffEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		b := backoff{tries: 30}
		b.wait(ctx)
		if took := time.Since(start); took != 0 {
			t.Fatalf("waited %v although nobody waits for it", took)
		}
	})
}
