package scanner

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	backoffMin = 50 * time.Millisecond
	backoffMax = 2 * time.Second
)

// backoff spaces out tries after errors: exponential, with full jitter, from
// 50 ms to 2 s. The zero value is ready.
type backoff struct {
	tries int
}

func (b *backoff) reset() { b.tries = 0 }

// wait sleeps before the next try, or until ctx ends.
func (b *backoff) wait(ctx context.Context) { sleep(ctx, b.next()) }

// next is how long to wait before the next try.
func (b *backoff) next() time.Duration {
	limit := exponential(backoffMin, backoffMax, b.tries)
	b.tries++
	return time.Duration(rand.Int64N(int64(limit))) + time.Millisecond
}

// exponential doubles from least, at most to most, after so many tries.
func exponential(least, most time.Duration, tries int) time.Duration {
	d := least
	for range tries {
		if d >= most/2 {
			return most
		}
		d *= 2
	}
	return min(d, most)
}

// retryDelay is when a task that the broker returned or refused is tried again:
// exponential by its attempts so far, with jitter of a fifth, so that what failed
// together doesn't come back together.
func retryDelay(least, most time.Duration, attempt int) time.Duration {
	d := exponential(least, most, attempt-1)
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
