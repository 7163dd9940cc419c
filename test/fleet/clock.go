package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClockOffset is how far Redis's clock is ahead of this machine's. On one
// machine they are the same clock: a difference that is no larger than what
// the measuring took is taken for zero, so that the measuring's own error makes
// no message look early.
func ClockOffset(ctx context.Context, client redis.UniversalClient) (time.Duration, error) {
	const samples = 20
	var offset time.Duration
	shortest := time.Hour
	for range samples {
		before := time.Now()
		theirs, err := client.Time(ctx).Result()
		if err != nil {
			return 0, fmt.Errorf("read Redis's clock: %w", err)
		}
		took := time.Since(before)
		if took < shortest {
			shortest, offset = took, theirs.Sub(before.Add(took/2))
		}
	}
	if offset.Abs() <= shortest {
		return 0, nil
	}
	return offset, nil
}
