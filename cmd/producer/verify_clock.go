package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clockEvery = time.Second
	// clockAge is how old a sample may be while a newer one exists.
	clockAge = 10 * time.Second
	// clockDrift is how much two clocks may differ more after a second, in parts: each
	// kernel slews its clock by at most 500 ppm (adjtimex(2)).
	clockDrift = 1.0 / 1000
)

// redisClock estimates Redis's clock. Each sample bounds it by a round trip. In a Redis
// Cluster the bounds hold for every master.
type redisClock struct {
	rdb redis.UniversalClient
	// begin is the origin of this machine's time here, which goes on if somebody sets its
	// clock.
	begin time.Time

	mu      sync.Mutex
	samples []clockSample
	worst   time.Duration
}

// clockSample bounds how far Redis's clock is ahead of this machine's.
type clockSample struct {
	at        time.Time
	low, high time.Duration
}

func newRedisClock(rdb redis.UniversalClient) *redisClock {
	return &redisClock{rdb: rdb, begin: time.Now()}
}

// local returns this machine's time at a moment, by the monotonic clock.
func (c *redisClock) local(at time.Time) time.Time { return c.begin.Add(at.Sub(c.begin)) }

// run takes samples until ctx ends. During an outage the last good one is used.
func (c *redisClock) run(ctx context.Context) {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			call, cancel := context.WithTimeout(ctx, clockEvery)
			_ = c.sample(call) // the error of the estimate grows with the age of its sample
			cancel()
		}
	}
}

// sample asks Redis for the time.
func (c *redisClock) sample(ctx context.Context) error {
	var mu sync.Mutex
	var all []clockSample
	ask := func(ctx context.Context, rdb redis.Cmdable) error {
		before := c.local(time.Now())
		there, err := rdb.Time(ctx).Result()
		after := c.local(time.Now())
		if err != nil {
			return fmt.Errorf("ask Redis for the time: %w", err)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, clockSample{after, there.Sub(after), there.Sub(before) + time.Microsecond})
		return nil
	}
	var err error
	if cluster, ok := c.rdb.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error { return ask(ctx, rdb) })
	} else {
		err = ask(ctx, c.rdb)
	}
	if err != nil || len(all) == 0 {
		return err
	}
	s := all[0]
	for _, other := range all[1:] {
		s.low, s.high = min(s.low, other.low), max(s.high, other.high)
	}
	c.add(s)
	return nil
}

// add keeps a sample. If it contradicts an earlier one, a clock was set, or another server
// has taken over: the earlier ones are forgotten.
func (c *redisClock) add(s clockSample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.samples[:0]
	for _, old := range c.samples {
		low, high := old.bounds(s.at)
		if s.low > high || s.high < low {
			kept = kept[:0]
			break
		}
		if s.at.Sub(old.at) < clockAge {
			kept = append(kept, old)
		}
	}
	c.samples = append(kept, s)
}

// bounds returns the bounds at a later time.
func (s clockSample) bounds(at time.Time) (low, high time.Duration) {
	drift := time.Duration(float64(at.Sub(s.at).Abs()) * clockDrift)
	return s.low - drift, s.high + drift
}

// now returns Redis's time at a moment of this machine, and the largest error of it. All
// kept samples hold together, so the bounds are those that each of them allows.
func (c *redisClock) now(at time.Time) (there time.Time, within time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at = c.local(at)
	low, high := c.samples[0].bounds(at)
	for _, s := range c.samples[1:] {
		l, h := s.bounds(at)
		low, high = max(low, l), min(high, h)
	}
	within = max(high-low, 0) / 2
	c.worst = max(c.worst, within)
	return at.Add(low + (high-low)/2), within
}

// largest returns the largest error of all estimates.
func (c *redisClock) largest() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.worst
}
