package shard

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/retry"
)

const (
	// wakePause is between two tries to listen.
	wakePause = 300 * time.Millisecond
	// wakeSilence is after how long without a message the connection is asked
	// whether it is still there.
	wakeSilence = 5 * time.Second
)

// Wakes listens to the wake channels of the first n shards until ctx ends, and
// tells heard of every score, in ms, that became a shard's earliest; and to that of
// the topic, and tells changed of every placement that is put in force. Messages
// published while a connection is down are lost; a worker that waits for the
// next due time notices at the end of its tick. It tells refused of each try that
// Redis denies this user (see Denied), and of nil once it listens.
func (t *Topic) Wakes(ctx context.Context, n int, heard func(shard int, score int64), changed func(), refused func(error)) {
	var listening sync.WaitGroup
	for _, channels := range t.together(n) {
		listening.Go(func() {
			for ctx.Err() == nil {
				if err := t.hear(ctx, channels, heard, changed, refused); Denied(err) {
					refused(err)
				}
				retry.Sleep(ctx, wakePause)
			}
		})
	}
	listening.Wait()
}

// noShard stands for the topic's own channel.
const noShard = -1

// together are the channels that share a connection, and the shard of each: all, but
// on a Redis Cluster each has its own, as channels of several slots can't be
// subscribed to in one command, which is how the client does it when it connects
// again.
func (t *Topic) together(n int) (groups []map[string]int) {
	all := map[string]int{t.changes(): noShard}
	for i := range n {
		all[t.Shard(i).Wake()] = i
	}
	if _, ok := t.rdb.(*redis.ClusterClient); !ok {
		return []map[string]int{all}
	}
	for channel, shard := range all {
		groups = append(groups, map[string]int{channel: shard})
	}
	return groups
}

// hear listens to some channels on one connection until that is lost, or the slot
// of one moves to another server.
func (t *Topic) hear(ctx context.Context, channels map[string]int, heard func(shard int, score int64), changed func(), refused func(error)) error {
	sub := t.rdb.SSubscribe(ctx, slices.Collect(maps.Keys(channels))...)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	silences, listening := 0, false
	for {
		m, err := sub.ReceiveTimeout(ctx, wakeSilence)
		var network net.Error
		if silences == 0 && errors.As(err, &network) && network.Timeout() {
			silences++
			err = sub.Ping(ctx)
		} else {
			silences = 0
		}
		if listening && Denied(err) { // PING is: the connection is there
			refused(err)
			continue
		}
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "sunsubscribe" {
				return nil
			}
			listening = true
			refused(nil)
		case *redis.Pong:
			refused(nil)
		case *redis.Message:
			if shard := channels[m.Channel]; shard == noShard {
				changed()
			} else if score, err := strconv.ParseFloat(m.Payload, 64); err == nil {
				heard(shard, int64(score))
			}
		}
	}
}
