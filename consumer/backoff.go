package consumer

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// backoff paces tries with full jitter (Brooker, "Exponential Backoff And
// Jitter", 2015), from 100ms to 5s.
type backoff struct{ tries int }

// wait pauses, or returns at once when ctx ends.
func (b *backoff) wait(ctx context.Context) {
	ceiling := min(backoffMin<<min(b.tries, 10), backoffMax)
	b.tries++
	timer := time.NewTimer(rand.N(ceiling) + 1) //nolint:gosec // jitter needs no secrecy
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (b *backoff) reset() { b.tries = 0 }

// complaintBeat is how often one thing is logged at most.
const complaintBeat = time.Minute

// complaints keeps a log from repeating itself.
type complaints struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// allow says whether it is time to log that again.
func (c *complaints) allow(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if last, said := c.last[what]; said && now.Sub(last) < complaintBeat {
		return false
	}
	if c.last == nil {
		c.last = map[string]time.Time{}
	}
	c.last[what] = now
	return true
}
