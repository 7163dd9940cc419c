package shard

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// wakePause is between two tries to listen.
	wakePause = 300 * time.Millisecond
	// wakeSilence is after how long without a message the connection is asked
	// whether it is still there.
	wakeSilence = 5 * time.Second
)

// Wakes listens to the wake channels of the first n shards until ctx ends, and
// tells heard of every score, in ms, that became a shard's earliest. Messages
// published while a connection is down are lost; a worker that waits for the
// next due time notices at the end of its tick.
func (t *Topic) Wakes(ctx context.Context, n int, heard func(shard int, score int64)) {
	var listening sync.WaitGroup
	for _, shards := range t.together(n) {
		listening.Go(func() {
			for ctx.Err() == nil {
				t.hear(ctx, shards, heard)
				wait(ctx, wakePause)
			}
		})
	}
	listening.Wait()
}

// together are the shards that share a connection: all, but on a Redis Cluster
// each has its own, as channels of several slots can't be subscribed to in one
// command, which is how the client does it when it connects again.
func (t *Topic) together(n int) (groups [][]int) {
	all := make([]int, n)
	for i := range all {
		all[i] = i
		groups = append(groups, all[i:i+1])
	}
	if _, ok := t.rdb.(*redis.ClusterClient); !ok {
		return [][]int{all}
	}
	return groups
}

// hear listens to some shards on one connection until that is lost, or the slot
// of one moves to another server.
func (t *Topic) hear(ctx context.Context, shards []int, heard func(shard int, score int64)) {
	channels := make([]string, len(shards))
	by := make(map[string]int, len(shards))
	for i, s := range shards {
		channels[i] = t.Wake(s)
		by[channels[i]] = s
	}
	sub := t.rdb.SSubscribe(ctx, channels...)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	silences := 0
	for {
		m, err := sub.ReceiveTimeout(ctx, wakeSilence)
		var network net.Error
		if silences == 0 && errors.As(err, &network) && network.Timeout() {
			silences++
			err = sub.Ping(ctx)
		} else {
			silences = 0
		}
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "sunsubscribe" {
				return
			}
		case *redis.Message:
			if score, err := strconv.ParseFloat(m.Payload, 64); err == nil {
				heard(by[m.Channel], int64(score))
			}
		}
	}
}
