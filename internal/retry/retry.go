// Package retry is what whoever tries again needs: pauses that grow, a sleep that ends
// with its context, and a broadcast of a change.
package retry

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Backoff spaces out tries after errors: exponential from Min to Max, with full jitter,
// so that what failed together doesn't come back together (Brooker, "Exponential Backoff
// And Jitter", 2015). It is for one goroutine.
type Backoff struct {
	// Min and Max are the limits of the pauses after the first and the last tries; each
	// pause is at random between nothing and its limit. Above 0.
	Min, Max time.Duration
	tries    int
}

// Next is how long to pause before the next try.
func (b *Backoff) Next() time.Duration {
	limit := Exponential(b.Min, b.Max, b.tries)
	b.tries++
	return rand.N(limit) + 1 //nolint:gosec // jitter needs no secrecy
}

// Wait pauses before the next try, or until ctx ends.
func (b *Backoff) Wait(ctx context.Context) { Sleep(ctx, b.Next()) }

// Reset begins anew with the pause after the first try, as after a success.
func (b *Backoff) Reset() { b.tries = 0 }

// Exponential doubles from least, at most to most, after so many tries.
func Exponential(least, most time.Duration, tries int) time.Duration {
	d := least
	for range tries {
		if d >= most/2 {
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
