package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClockOffset returns how far Redis's clock is ahead of this machine's. It returns zero
// if the difference is not larger than the time that the measurement took. On one machine
// both clocks are the same, and a measuring error must not make a message look early.
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
