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
	one := t.store.Stats(ctx, []Count{{Topic: t, Shards: n}})[0]
	return one.Stats, one.Err
}

// Count is the first Shards shards of a topic, and their stats with the error of Topic.Stats.
type Count struct {
	Topic  *Topic
	Shards int
	Stats  []Stats
	Err    error
}

// Stats counts shards of any topics in one round trip for each node of Redis. It returns its
// argument.
func (s *Store) Stats(ctx context.Context, topics []Count) []Count {
	var calls []luascript.Call
	for _, c := range topics {
		for at := range c.Shards {
			calls = append(calls, luascript.Call{Script: "stats", Keys: []string{c.Topic.Shard(at).due()}})
		}
	}
	replies := s.scripts.RunAll(ctx, calls)
	for i := range topics {
		c := &topics[i]
		c.Stats, c.Err = c.Topic.counted(replies[:c.Shards])
		replies = replies[c.Shards:]
	}
	return topics
}

// counted reads the replies of the first shards.
func (t *Topic) counted(replies []luascript.Reply) ([]Stats, error) {
	stats := make([]Stats, 0, len(replies))
	failed := map[int]error{}
	for i, reply := range replies {
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
	return stats, t.LeftOut(len(replies), failed)
}
