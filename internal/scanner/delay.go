package scanner

import (
	"math/rand/v2"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
)

// retryDelay is when a task that the broker returned or refused is tried again:
// exponential by its attempts so far, with jitter of a fifth, so that what failed
// together doesn't come back together.
func retryDelay(least, most time.Duration, attempt int) time.Duration {
	d := retry.Exponential(least, most, attempt-1)
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}
