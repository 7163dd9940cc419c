package luascript

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// clock estimates Redis's clock from its TIME and this process's monotonic clock. The
// estimate serves only where it need not be exact: for deadlines and for input
// checks. Scripts decide due times by Redis's own clock.
type clock struct {
	mu     sync.Mutex
	asked  time.Time // when the estimate was made, monotonic
	millis int64     // Redis's clock then
}

// clockAge is how long an estimate is used. Clocks take far longer to drift apart by the
// slack in a deadline.
const clockAge = time.Minute

// clockPatience bounds how long the masters of a Redis Cluster are asked for their time,
// so that a master that hangs delays nobody for longer.
const clockPatience = 500 * time.Millisecond

// CallLife is how long a script may take to reach Redis; after that it does nothing. So a
// caller whose connection died waits that long before it repeats a call of unknown fate.
const CallLife = 3 * time.Second

// Now estimates Redis's clock in ms.
func (c *Client) Now(ctx context.Context) (int64, error) { return c.RecentNow(ctx, clockAge) }

// RecentNow estimates Redis's clock in ms. It asks Redis if the estimate is older than age.
func (c *Client) RecentNow(ctx context.Context, age time.Duration) (int64, error) {
	if now, of := c.Estimate(); now != 0 && of < age {
		return now, nil
	}
	return c.LatestNow(ctx)
}

// Estimate returns the estimate of Redis's clock, in ms, and the age of the reading that it
// follows from. It is 0 before the first reading.
func (c *Client) Estimate() (now int64, age time.Duration) {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	if c.clock.millis == 0 {
		return 0, 0
	}
	age = time.Since(c.clock.asked)
	return c.clock.millis + age.Milliseconds(), age
}

// LatestNow asks Redis for its clock, in ms, and keeps it as the estimate.
func (c *Client) LatestNow(ctx context.Context) (int64, error) {
	now, err := c.latest(ctx)
	if err != nil {
		return 0, err
	}
	c.AssumeTime(now)
	return now, nil
}

// HearTime takes the clock of a Redis that answered, in ms, as the estimate. In a Redis Cluster
// it does nothing, because the clock of another master may be ahead.
func (c *Client) HearTime(ctx context.Context, now int64) {
	if _, cluster := c.server.Client(ctx).(*redis.ClusterClient); !cluster {
		c.AssumeTime(now)
	}
}

// AssumeTime sets the estimate of Redis's clock, in ms.
func (c *Client) AssumeTime(now int64) {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	c.clock.asked, c.clock.millis = time.Now(), now
}

// latest returns Redis's clock in ms. In a Redis Cluster this is the clock furthest ahead
// among the masters that answer. So a deadline isn't over too early on any of them.
func (c *Client) latest(ctx context.Context) (int64, error) {
	rdb := c.server.Client(ctx)
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return timeOf(ctx, rdb)
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
		return timeOf(ctx, cluster)
	}
	return latest, nil
}

// clockOf returns the clock, in ms, of the server that holds a key.
func (c *Client) clockOf(ctx context.Context, key string) (int64, error) {
	rdb := c.server.Client(ctx)
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return timeOf(ctx, rdb)
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

// Deadline returns the Redis time in ms after which a call that begins now must do
// nothing. If ctx has ended it returns ctx's error: the call must not begin.
func (c *Client) Deadline(ctx context.Context) (int64, error) {
	now, err := c.Now(ctx)
	return now + CallLife.Milliseconds(), cmp.Or(err, ctx.Err())
}

// ForgetClock drops the estimate. It is called after a script was refused as late:
// Redis's clock was set, or another server took over.
func (c *Client) ForgetClock() {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	c.clock.millis = 0
}
