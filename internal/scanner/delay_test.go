package scanner

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/retry"
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
		if full := retry.Exponential(least, most, attempt-1); attempt > 70 && full != most {
			t.Fatalf("attempt %d: %v, not yet %v", attempt, full, most)
		}
	})
}
