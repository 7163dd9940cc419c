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
	// wakePause is the pause between two tries to listen.
	wakePause = 300 * time.Millisecond
	// wakeSilence is how long a connection may be silent before it is pinged.
	wakeSilence = 5 * time.Second
)

// Wakes listens to the wake channels of the first n shards and to the topic's own channel
// until ctx ends. It calls heard with each score, in ms, that became a shard's earliest,
// and changed for each placement put in force. It calls refused with each error by which
// Redis denies this user to listen (see Denied), and with nil once it listens. Messages
// published while a connection is down are lost; a worker that waits for the next due
// time notices at the end of its tick.
func (t *Topic) Wakes(ctx context.Context, n int, heard func(shard int, score int64), changed func(),
	refused func(error)) {
	for err := t.store.server.Find(ctx); err != nil; err = t.store.server.Find(ctx) {
		if Denied(err) {
			refused(err)
		}
		if !retry.Sleep(ctx, wakePause) {
			return
		}
	}
	var listening sync.WaitGroup
	for _, channels := range t.together(n) {
		listening.Go(func() {
			for ctx.Err() == nil {
				if err := t.listenOn(ctx, channels, heard, changed, refused); Denied(err) {
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

// together groups the channels that share a connection, each with its shard. Usually all
// share one. In a Redis Cluster each channel has its own: when the client reconnects it
// subscribes with one command, which can't name channels of several slots.
func (t *Topic) together(n int) (groups []map[string]int) {
	all := map[string]int{t.changes(): noShard}
	for i := range n {
		all[t.Shard(i).Wake()] = i
	}
	if !t.store.Clustered() {
		return []map[string]int{all}
	}
	for channel, shard := range all {
		groups = append(groups, map[string]int{channel: shard})
	}
	return groups
}

// listenOn listens to channels on one connection. It returns when the connection is lost, or
// when the slot of a channel moves to another server.
func (t *Topic) listenOn(ctx context.Context, channels map[string]int, heard func(shard int, score int64),
	changed func(), refused func(error)) error {
	sub := t.store.Client(ctx).SSubscribe(ctx, slices.Collect(maps.Keys(channels))...)
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
		if listening && Denied(err) { // only PING is denied: the connection is there
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
