package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// Head says when a shard needs attention, read from its first score alone. Err says why it
// isn't known.
type Head struct {
	// Due is when its earliest waiting task is due, by Redis's clock; zero if none waits.
	Due time.Time
	// Leased reports whether tasks are leased. Then Due is zero.
	Leased bool
	Err    error
}

// Heads reads the first score of shards of any topics, one plain command each. It costs
// Redis less than Topic.Attention. A node of a Redis Cluster that hangs until ctx ends spoils
// only its own shards. The results are in the order of the shards.
func (s *Store) Heads(ctx context.Context, shards []Shard) []Head {
	keys := make([]string, len(shards))
	for i, at := range shards {
		keys[i] = at.due()
	}
	heads := make([]Head, len(shards))
	for i, answer := range pipelined(ctx, s, keys, func(pipe redis.Pipeliner, key string) *redis.ZSliceCmd {
		return pipe.ZRangeWithScores(ctx, key, 0, 0)
	}) {
		heads[i] = headOf(shards[i], answer)
	}
	return heads
}

func headOf(at Shard, answer *redis.ZSliceCmd) Head {
	first, err := answer.Result()
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return Head{Err: fmt.Errorf("read the head of shard %d of topic %s: %w", at.n, at.topic.name, err)}
	case len(first) == 0 || math.IsInf(first[0].Score, 1): // empty, or all are parked
		return Head{}
	case first[0].Score < 0:
		return Head{Leased: true}
	}
	return Head{Due: time.UnixMilli(int64(first[0].Score))}
}

// Wakeup makes all who listen to the shard look at it, as a task that is due at an instant
// does.
func (s Shard) Wakeup(ctx context.Context, due time.Time) error {
	if err := s.topic.store.Client(ctx).SPublish(ctx, s.Wake(), due.UnixMilli()).Err(); err != nil {
		return fmt.Errorf("wake shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	return nil
}
