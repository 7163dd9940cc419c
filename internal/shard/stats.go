package shard

import (
	"context"
	"fmt"
	"time"
)

// Stats counts the tasks of one shard.
type Stats struct {
	Shard   int   `json:"shard"`
	Pending int64 `json:"pending"` // all that is stored
	Backlog int64 `json:"backlog"` // due, or their lease ran out
	Leased  int64 `json:"leased"`
	Parked  int64 `json:"parked"`
	// Oldest is the due time of the earliest waiting task; zero if none waits.
	Oldest time.Time `json:"oldest_due,omitzero"`
	// Now is Redis's clock.
	Now time.Time `json:"-"`
}

// Stats counts the first n shards in one round trip. It leaves out shards that can't be
// read; an *UnreadableError names them.
func (t *Topic) Stats(ctx context.Context, n int) ([]Stats, error) {
	shards := make([]int, n)
	for i := range shards {
		shards[i] = i
	}
	return t.StatsOf(ctx, shards)
}

// StatsOf is Stats for the given shards, in their order.
func (t *Topic) StatsOf(ctx context.Context, shards []int) ([]Stats, error) {
	calls := make([]call, len(shards))
	for i, at := range shards {
		calls[i] = call{script: "stats", keys: []string{t.Shard(at).due()}}
	}
	stats := make([]Stats, 0, len(shards))
	failed := map[int]error{}
	for i, cmd := range t.runAll(ctx, calls) {
		v, err := cmd.Int64Slice()
		if err != nil {
			failed[shards[i]] = fmt.Errorf("count shard %d of topic %s: %w", shards[i], t.name, err)
			continue
		}
		s := Stats{Shard: shards[i], Pending: v[1], Backlog: v[2], Leased: v[3], Parked: v[4], Now: time.UnixMilli(v[0])}
		if v[5] >= 0 {
			s.Oldest = time.UnixMilli(v[5]).UTC()
		}
		stats = append(stats, s)
	}
	return stats, t.LeftOut(len(shards), failed)
}
