package registry

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Clock is a reading of the clock of a Redis server.
type Clock struct {
	Addr string
	// At is the server's clock, and Read this machine's at the same time, within the
	// uncertainty. Read has a monotonic reading.
	At, Read time.Time
	// Uncertain is half of the round trip.
	Uncertain time.Duration
}

// Ahead returns how far the server's clock is ahead of this machine's.
func (c Clock) Ahead() time.Duration { return c.At.Sub(c.Read) }

// Moved returns by how much the server's clock was set ahead since an earlier reading. It
// doesn't depend on whether this machine's clock was set.
func (c Clock) Moved(since Clock) time.Duration {
	return c.At.Sub(since.At) - c.Read.Sub(since.Read)
}

// Clocks reads the clock of each server that holds shards. It returns the readings that it
// made, also with an error.
func (r *Registry) Clocks(ctx context.Context) (all []Clock, err error) {
	var mu sync.Mutex
	err = r.eachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		asked := time.Now()
		at, err := server.Time(ctx).Result()
		half := time.Since(asked) / 2
		if err != nil {
			return fmt.Errorf("ask %s for the time: %w", server.Options().Addr, err)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, Clock{server.Options().Addr, at, asked.Add(half), half})
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	return all, err
}
