package forward

import (
	"math/rand/v2"
	"time"
)

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// backoff paces tries with full jitter (Brooker, "Exponential Backoff And
// Jitter", 2015), so that a fleet doesn't come back all at once.
type backoff struct{ tries int }

// next is how long to wait before the next try: anything up to a ceiling that
// doubles from 100ms to 5s.
func (b *backoff) next() time.Duration {
	ceiling := min(backoffMin<<min(b.tries, 10), backoffMax)
	b.tries++
	return rand.N(ceiling) + 1 //nolint:gosec // jitter needs no secrecy
}

func (b *backoff) reset() { b.tries = 0 }
