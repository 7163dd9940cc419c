package shard

import (
	"context"
	"fmt"
	"strconv"
)

// Wakes listens to the wake channels of the first n shards until ctx ends, and
// tells heard of every score, in ms, that became a shard's earliest. Messages
// published while the connection is down are lost; a worker that waits for the
// next due time notices at the end of its tick.
func (t *Topic) Wakes(ctx context.Context, n int, heard func(shard int, score int64)) error {
	channels := make([]string, n)
	shards := make(map[string]int, n)
	for i := range n {
		channels[i] = t.Wake(i)
		shards[channels[i]] = i
	}
	sub := t.rdb.SSubscribe(ctx, channels...)
	messages := sub.Channel()
	for {
		select {
		case <-ctx.Done():
			return sub.Close()
		case m, open := <-messages:
			if !open {
				return fmt.Errorf("listen to topic %s: subscription closed", t.name)
			}
			if score, err := strconv.ParseFloat(m.Payload, 64); err == nil {
				heard(shards[m.Channel], int64(score))
			}
		}
	}
}
