package shard

import (
	"context"
	"fmt"
	"sync"
	"time"
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
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("ask Redis for the time: %w", err)
	}
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.asked, s.clock.millis = time.Now(), now.UnixMilli()
	return s.clock.millis, nil
}

// NotAfter is the Redis ms after which a call that begins now must do nothing.
func (s *Store) NotAfter(ctx context.Context) (int64, error) {
	now, err := s.Now(ctx)
	return now + callLife.Milliseconds(), err
}

// ForgetClock drops the estimate, after a script was refused as late: Redis's
// clock was set, or another server took over.
func (s *Store) ForgetClock() {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.millis = 0
}
