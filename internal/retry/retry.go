// Package retry is what whoever tries again needs: pauses that grow, a sleep that ends
// with its context, and a broadcast of a change.
package retry

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Backoff spaces out tries after errors: exponential from Min to Max, with full jitter,
// so that what failed together doesn't come back together (Brooker, "Exponential Backoff
// And Jitter", 2015). It is for one goroutine. The zero value is ready.
type Backoff struct {
	// Min is the limit of the pause after the first try; each pause is at random
	// between nothing and its limit. Defaults to 50 ms.
	Min time.Duration
	// Max is what the limit grows to. Defaults to 2 s.
	Max   time.Duration
	tries int
}

const (
	defaultMin = 50 * time.Millisecond
	defaultMax = 2 * time.Second
)

// Next is how long to pause before the next try.
func (b *Backoff) Next() time.Duration {
	limit := Exponential(cmp.Or(b.Min, defaultMin), cmp.Or(b.Max, defaultMax), b.tries)
	b.tries++
	return rand.N(limit) + 1 //nolint:gosec // jitter needs no secrecy
}

// Wait pauses before the next try, or until ctx ends.
func (b *Backoff) Wait(ctx context.Context) { Sleep(ctx, b.Next()) }

// Reset begins anew with the pause after the first try, as after a success.
func (b *Backoff) Reset() { b.tries = 0 }

// Tries is how many there were since the beginning, or since Reset.
func (b *Backoff) Tries() int { return b.tries }

// Exponential doubles from least, at most to most, after so many tries.
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

// Sleep waits for d, or until ctx ends, and reports whether it was for d.
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

// Broadcast wakes everybody who waits for a change. The zero value is ready.
type Broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// Next is closed at the next change. Take it before looking at the state.
func (b *Broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// Fire tells of a change.
func (b *Broadcast) Fire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
