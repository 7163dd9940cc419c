package shard

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// clock estimates Redis's clock from its TIME and this process's monotonic one.
// It serves only what needs no exactness: a bound after which a script that was
// held up does nothing, and input checks. Due times are decided by scripts.
type clock struct {
	mu     sync.Mutex
	asked  time.Time // when the estimate was made, monotonic
	millis int64     // Redis's clock then
}

// clockAge is how long an estimate is trusted: far shorter than any two clocks
// need to drift by the slack in notAfter.
const clockAge = time.Minute

// clockPatience bounds how long the masters of a Redis Cluster are asked for
// their time: one that stands still holds up nobody for longer.
const clockPatience = 500 * time.Millisecond

// callLife is how long a script may take to reach Redis before it does nothing;
// so it is also how long a caller waits, after a connection died, until it may
// repeat a call whose fate it doesn't know.
const callLife = 3 * time.Second

// Now estimates Redis's clock in ms.
func (s *Store) Now(ctx context.Context) (int64, error) {
	s.clock.mu.Lock()
	asked, millis := s.clock.asked, s.clock.millis
	s.clock.mu.Unlock()
	if age := time.Since(asked); millis != 0 && age < clockAge {
		return millis + age.Milliseconds(), nil
	}
	return s.askClock(ctx)
}

func (s *Store) askClock(ctx context.Context) (int64, error) {
	now, err := s.latest(ctx)
	if err != nil {
		return 0, err
	}
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.asked, s.clock.millis = time.Now(), now
	return now, nil
}

// latest is the clock of Redis; of a Redis Cluster, that which is furthest ahead
// of those of the masters that answer: what it bounds is not late anywhere.
func (s *Store) latest(ctx context.Context) (int64, error) {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return timeOf(ctx, s.rdb)
	}
	asking, cancel := context.WithTimeout(ctx, clockPatience)
	defer cancel()
	var mu sync.Mutex
	var latest int64
	_ = cluster.ForEachMaster(asking, func(ctx context.Context, master *redis.Client) error {
		now, err := timeOf(ctx, master)
		mu.Lock()
		defer mu.Unlock()
		latest = max(latest, now)
		return err
	})
	if latest == 0 { // they are slow, or away
		return timeOf(ctx, s.rdb)
	}
	return latest, nil
}

// clockOf is the clock of the server that holds a key.
func (s *Store) clockOf(ctx context.Context, key string) (int64, error) {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return timeOf(ctx, s.rdb)
	}
	master, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("find the server of %s: %w", key, err)
	}
	return timeOf(ctx, master)
}

func timeOf(ctx context.Context, rdb redis.Cmdable) (int64, error) {
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("ask Redis for the time: %w", err)
	}
	return now.UnixMilli(), nil
}

// NotAfter returns the Redis ms after which a call that begins now must do nothing. It
// returns the error of a ctx that is over: the call must not begin.
func (s *Store) NotAfter(ctx context.Context) (int64, error) {
	now, err := s.Now(ctx)
	return now + callLife.Milliseconds(), cmp.Or(err, ctx.Err())
}

// ForgetClock drops the estimate, after a script was refused as late: Redis's
// clock was set, or another server took over.
func (s *Store) ForgetClock() {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.millis = 0
}
