package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestPausesGrowFromMinToMaxAndBeginAnewAfterASuccess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "min"))
		most := least + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "more"))
		b := Backoff{Min: least, Max: most}
		limit := least
		for range rapid.IntRange(1, 100).Draw(t, "tries") {
			if d := b.Next(); d <= 0 || d > limit {
				t.Fatalf("%v, want up to %v", d, limit)
			}
			limit = min(2*limit, most)
		}
		b.Reset()
		if d := b.Next(); d > least {
			t.Fatalf("%v after a success, want up to %v", d, least)
		}
	})
}

func TestDelaysDouble(t *testing.T) {
	t.Parallel()
	for tries, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if got := Exponential(time.Second, 10*time.Second, tries); got != want*time.Second {
			t.Errorf("after %d tries: %v, want %v", tries, got, want*time.Second)
		}
	}
	if got := Exponential(1, 1<<62, 2000); got != 1<<62 {
		t.Errorf("after 2000 tries: %v", got)
	}
}

func TestASleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if !Sleep(ctx, time.Millisecond) || time.Since(start) != time.Millisecond {
			t.Fatalf("slept %v", time.Since(start))
		}
		if Sleep(ctx, time.Hour) || time.Since(start) != time.Second {
			t.Fatalf("slept %v although its context ended", time.Since(start))
		}
	})
}
