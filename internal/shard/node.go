package shard

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Node returns the address of the master that holds the shard, as the client knows it. It
// asks nobody, so the answer may be out of date for a moment after a failover. It is ""
// if Redis is no cluster: then all shards have one node.
func (s Shard) Node(ctx context.Context) string {
	cluster, ok := s.topic.store.rdb.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	master, err := cluster.MasterForKey(ctx, s.due())
	if err != nil {
		return ""
	}
	return master.Options().Addr
}
