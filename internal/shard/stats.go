package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
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
	calls := make([]luascript.Call, n)
	for i := range calls {
		calls[i] = luascript.Call{Script: "stats", Keys: []string{t.Shard(i).due()}}
	}
	stats := make([]Stats, 0, n)
	failed := map[int]error{}
	for i, reply := range t.store.scripts.RunAll(ctx, calls) {
		l := reply.Values()
		s := Stats{Shard: i, Now: time.UnixMilli(l.Int()), Pending: l.Int(), Backlog: l.Int(), Leased: l.Int(),
			Parked: l.Int()}
		if oldest := l.Int(); oldest >= 0 {
			s.Oldest = time.UnixMilli(oldest).UTC()
		}
		if err := l.Err(); err != nil {
			failed[i] = fmt.Errorf("count shard %d of topic %s: %w", i, t.name, err)
			continue
		}
		stats = append(stats, s)
	}
	return stats, t.LeftOut(n, failed)
}
