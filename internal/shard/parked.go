package shard

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Parked lists up to count parked tasks of a shard, from an offset on.
func (t *Topic) Parked(ctx context.Context, shard int, offset, count int64) ([]Record, error) {
	inf := strconv.FormatFloat(math.Inf(1), 'g', -1, 64)
	by := &redis.ZRangeBy{Min: inf, Max: inf, Offset: offset, Count: count}
	ids, err := t.rdb.ZRangeByScore(ctx, t.due(shard), by).Result()
	if err != nil || len(ids) == 0 {
		return nil, wrapIf(err, "list parked tasks of shard %d of topic %s", shard, t.name)
	}
	values, err := t.rdb.HMGet(ctx, t.tasks(shard), ids...).Result()
	if err != nil {
		return nil, fmt.Errorf("list parked tasks of shard %d of topic %s: %w", shard, t.name, err)
	}
	records := make([]Record, len(ids))
	for i, id := range ids {
		text, _ := values[i].(string)
		r, err := DecodeRecord(t.name, id, text)
		if err != nil {
			r.Reason = err.Error()
		}
		records[i] = r
	}
	return records, nil
}

func wrapIf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// Replay makes parked tasks of a shard due now and answers how many were parked.
func (t *Topic) Replay(ctx context.Context, shard int, ids ...string) (int, error) {
	keys := []string{t.due(shard), t.tasks(shard), t.Wake(shard)}
	n, err := t.run(ctx, call{script: "replay", keys: keys, args: anys(ids)}).Int()
	return n, wrapIf(err, "replay in shard %d of topic %s", shard, t.name)
}

// PurgeParked removes parked tasks of a shard for good and answers how many
// were parked.
func (t *Topic) PurgeParked(ctx context.Context, shard int, ids ...string) (int, error) {
	n, err := t.run(ctx, call{script: "purge", keys: []string{t.due(shard), t.tasks(shard)}, args: anys(ids)}).Int()
	return n, wrapIf(err, "purge in shard %d of topic %s", shard, t.name)
}

func anys(ids []string) []any {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	return args
}
