package verify

import (
	"context"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

const (
	clockEvery = time.Second
	// clockDrift is how much two clocks may differ more after a second, in parts: each
	// kernel slews its clock by at most 500 ppm (adjtimex(2)).
	clockDrift = 1.0 / 1000
)

// clock estimates Redis's clock. Each sample bounds it by a round trip. In a Redis Cluster
// the bounds hold for every master.
type clock struct {
	store *shard.Store
	// begin is the origin of this machine's time here, which goes on if somebody sets its
	// clock.
	begin time.Time

	mu    sync.Mutex
	known bounds
	worst time.Duration // the largest error of all estimates
}

// bounds say how far Redis's clock is ahead of this machine's.
type bounds struct {
	at        time.Time
	low, high time.Duration
}

// later returns the bounds at a later time.
func (b bounds) later(at time.Time) bounds {
	drift := time.Duration(float64(at.Sub(b.at).Abs()) * clockDrift)
	return bounds{at, b.low - drift, b.high + drift}
}

func newClock(store *shard.Store) *clock { return &clock{store: store, begin: time.Now()} }

// local returns this machine's time at a moment, by the monotonic clock.
func (c *clock) local(at time.Time) time.Time { return c.begin.Add(at.Sub(c.begin)) }

// run takes samples until ctx ends. During an outage the error of the estimate grows.
func (c *clock) run(ctx context.Context) {
	for retry.Sleep(ctx, clockEvery) {
		call, cancel := context.WithTimeout(ctx, clockEvery)
		_ = c.sample(call) // the next second tries again
		cancel()
	}
}

// sample asks Redis for the time.
func (c *clock) sample(ctx context.Context) error {
	began := c.local(time.Now())
	clocks, err := c.store.Registry().Clocks(ctx)
	if err != nil {
		return err
	}
	var sample bounds
	for i, there := range clocks {
		ahead := there.At.Sub(c.local(there.Read))
		within := there.Uncertain + time.Microsecond // TIME leaves out the nanoseconds
		if i == 0 {
			sample = bounds{began, ahead - within, ahead + within}
		}
		sample.low, sample.high = min(sample.low, ahead-within), max(sample.high, ahead+within)
	}
	c.add(sample)
	return nil
}

// add narrows the bounds by a sample. If it contradicts them, a clock was set, or another
// server has taken over: then the sample alone counts.
func (c *clock) add(sample bounds) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known.later(sample.at)
	known.low, known.high = max(known.low, sample.low), min(known.high, sample.high)
	if c.known.at.IsZero() || known.low > known.high {
		known = sample
	}
	c.known = known
}

// now returns Redis's time at a moment of this machine, and the largest error of it.
func (c *clock) now(at time.Time) (there time.Time, within time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at = c.local(at)
	known := c.known.later(at)
	within = (known.high - known.low) / 2
	c.worst = max(c.worst, within)
	return at.Add(known.low + within), within
}
