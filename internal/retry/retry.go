// Package retry provides growing pauses between tries, and a sleep that ends with its
// context.
package retry

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

// Backoff spaces out retries after errors. Pauses grow exponentially from Min to Max,
// with full jitter, so that callers that failed together don't retry together (Brooker,
// "Exponential Backoff And Jitter", 2015). It is for one goroutine. The zero value is
// ready to use.
type Backoff struct {
	// Min bounds the pause after the first try. Each pause is random, above 0 and up to
	// its bound. Defaults to 50 ms.
	Min time.Duration
	// Max limits that bound, which doubles with each try. Defaults to 2 s.
	Max   time.Duration
	tries int
}

const (
	defaultMin = 50 * time.Millisecond
	defaultMax = 2 * time.Second
)

// Next returns how long to pause before the next try.
func (b *Backoff) Next() time.Duration {
	limit := Exponential(cmp.Or(b.Min, defaultMin), cmp.Or(b.Max, defaultMax), b.tries)
	b.tries++
	return rand.N(limit) + 1 //nolint:gosec // jitter needs no secrecy
}

// Wait pauses before the next try, or until ctx ends.
func (b *Backoff) Wait(ctx context.Context) { Sleep(ctx, b.Next()) }

// Reset starts again with the pause after the first try, as after a success.
func (b *Backoff) Reset() { b.tries = 0 }

// Exponential doubles least once per try and returns the result, which is at most most.
func Exponential(least, most time.Duration, tries int) time.Duration {
	d := least
	for range tries {
		if d > most/2 {
			return most
		}
		d *= 2
	}
	return min(d, most)
}

// Sleep waits for d or until ctx ends. It returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
