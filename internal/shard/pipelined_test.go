package shard

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// hungCluster returns a store on a Redis Cluster of its own, in which one master hangs, and the
// address of that master. No replica takes over.
func hungCluster(t *testing.T) (*Store, string) {
	t.Helper()
	cluster := servertest.OwnRedisCluster(t)
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := New(rdb, "duefleet")
	check.OK(t, err)
	_, err = store.Topic("orders").Ensure(t.Context(), 1) // the client knows the nodes from now on
	check.OK(t, err)
	hung := cluster.Nodes[0]
	check.OK(t, hung.Pause())
	t.Cleanup(func() { check.OK(t, hung.Resume()) })
	return store, hung.Addr()
}

// TestAMasterThatHangsSpoilsNoAnswerOfAnother: shards and topics take several pipelines, and one of
// the masters that hold them answers none.
func TestAMasterThatHangsSpoilsNoAnswerOfAnother(t *testing.T) {
	t.Parallel()
	store, hung := hungCluster(t)
	const n = 4 * commandsAtOnce
	var topics []*Topic
	var shards []Shard
	for i := range n {
		topics = append(topics, store.Topic(fmt.Sprint("topic-", i)))
		shards = append(shards, topics[i].Shard(0))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	lost := 0
	for i, h := range store.Heads(ctx, shards) {
		hangs := shards[i].Node(t.Context()) == hung
		if (h.Err != nil) != hangs {
			t.Fatalf("head %d of %d: %v; its master hangs: %v", i, n, h.Err, hangs)
		}
		if hangs {
			lost++
		}
	}
	if lost == 0 || lost == n {
		t.Errorf("the master that hangs has %d of %d shards", lost, n)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for i, p := range store.Placements(ctx, topics) {
		hangs := store.nodeOf(t.Context(), topics[i].placementKey()) == hung
		if errors.Is(p.Err, task.ErrUnknownTopic) == hangs {
			t.Fatalf("placement %d of %d: %v; its master hangs: %v", i, n, p.Err, hangs)
		}
	}
}

// TestAShardOfAServerThatRefusesTheLoginIsNotEmpty: no command is sent, so each has the error.
func TestAShardOfAServerThatRefusesTheLoginIsNotEmpty(t *testing.T) {
	t.Parallel()
	addr, prefix := servertest.Redis(t)
	options := servertest.RedisOptions(addr)
	options.Username, options.Password = prefix, "of a user that isn't there"
	rdb := redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := New(rdb, prefix)
	check.OK(t, err)
	orders := store.Topic("orders")
	for i, h := range store.Heads(t.Context(), []Shard{orders.Shard(0), orders.Shard(1)}) {
		if !Denied(h.Err) {
			t.Errorf("head %d: %+v, want a refusal", i, h)
		}
	}
	for _, p := range store.Placements(t.Context(), []*Topic{orders, orders}) {
		if !Denied(p.Err) {
			t.Errorf("placement: %+v, want a refusal", p)
		}
	}
}
