package admin

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
)

// maxCounts bounds the counts of one CountDue. They take about 5 ms of Redis.
const maxCounts = 4096

// DueSpan is a span of time and how many tasks wait for it. Tasks that wait for another
// attempt count by the time of that attempt.
type DueSpan struct {
	From, To time.Time // To is not included.
	Tasks    int64
}

// CountDue sets Tasks of each span to the waiting tasks of the first shards, in one round
// trip. It returns how many shards it counted. If that is fewer than shards, Tasks are
// estimates: IDs spread evenly over shards. Shards that can't be read have no tasks.
func CountDue(ctx context.Context, t *shard.Topic, shards int, spans []DueSpan) (counted int, err error) {
	if shards == 0 || len(spans) == 0 {
		return 0, nil
	}
	counted = max(1, min(shards, maxCounts/len(spans)))
	pipe := t.Store().Client(ctx).Pipeline()
	replies := make([]*redis.IntCmd, 0, counted*len(spans))
	for i := range counted {
		key := dueKey(t.Shard(i * shards / counted))
		for _, s := range spans {
			from, to := strconv.FormatInt(s.From.UnixMilli(), 10), strconv.FormatInt(s.To.UnixMilli(), 10)
			replies = append(replies, pipe.ZCount(ctx, key, from, "("+to))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !shard.Definite(err) {
		return 0, fmt.Errorf("count what falls due of topic %s: %w", t.Name(), err)
	}
	for i := range spans {
		spans[i].Tasks = 0
		for at := i; at < len(replies); at += len(spans) {
			spans[i].Tasks += replies[at].Val()
		}
		spans[i].Tasks = spans[i].Tasks * int64(shards) / int64(counted)
	}
	return counted, nil
}

// dueKey returns the key of a shard's sorted set, from the name of its channel. Neither
// prefixes nor topics have braces.
func dueKey(s shard.Shard) string { return strings.Replace(s.Wake(), ":wake:{", ":due:{", 1) }
