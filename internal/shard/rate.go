package shard

import (
	"context"
	"fmt"
	"time"
)

// Grant asks for a share of a topic's rate over the whole fleet, in tasks;
// a negative want gives unused tasks back. With nothing granted, wait is how
// long until one more is to be had. burst is how much of the rate may leave at
// once.
func (t *Topic) Grant(ctx context.Context, rate, want int, burst time.Duration) (granted int, wait time.Duration, err error) {
	v, err := t.run(ctx, call{script: "rate", keys: []string{t.rateKey()}, args: []any{rate, want, burst.Microseconds()}}).Int64Slice()
	if err != nil {
		return 0, 0, fmt.Errorf("ask for the rate of topic %s: %w", t.name, err)
	}
	return int(v[0]), time.Duration(v[1]) * time.Microsecond, nil
}
