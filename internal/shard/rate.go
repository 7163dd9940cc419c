package shard

import (
	"context"
	"fmt"
	"time"
)

// Grant asks for want tasks of a topic's rate, in tasks a second over the whole fleet; a
// negative want gives unused tasks back. burst is how much of the rate may leave at once.
// If nothing is granted, wait is the time until one more task is available.
func (t *Topic) Grant(ctx context.Context, rate, want int, burst time.Duration) (granted int, wait time.Duration,
	err error) {
	v, err := t.run(ctx, call{script: "rate", keys: []string{t.rateKey()},
		args: []any{rate, want, burst.Microseconds()}}).Int64Slice()
	if err != nil {
		return 0, 0, fmt.Errorf("ask for the rate of topic %s: %w", t.name, err)
	}
	return int(v[0]), time.Duration(v[1]) * time.Microsecond, nil
}
