package shard

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
	patience "github.com/duefleet/duefleet/test/wait"
)

// listening is a topic whose wakes are heard.
type listening struct {
	*sandbox
	next    time.Time // each task is due before the one before
	heard   atomic.Int64
	changes atomic.Int64
}

func listen(c *sandbox) *listening {
	c.t.Helper()
	l := &listening{sandbox: c, next: time.UnixMilli(c.now()).Add(24 * time.Hour)}
	l.heard.Store(math.MaxInt64)
	patience.Background(c.t, "Wakes", func(ctx context.Context) error {
		c.Wakes(ctx, c.p.Shards, func(_ int, score int64) { l.heard.Store(score) }, func() { l.changes.Add(1) },
			func(error) {})
		return nil
	})
	return l
}

// hears puts tasks, each the earliest, until one of them is heard of.
func (l *listening) hears(when string) {
	l.t.Helper()
	first := l.next.Add(-time.Second).UnixMilli()
	looks := 0
	eventually(l.t, "a wake is heard "+when, func() bool {
		if looks++; looks%10 == 1 {
			l.next = l.next.Add(-time.Second)
			l.put(task.At(l.next), "earliest")
		}
		return l.heard.Load() <= first
	})
}

func TestWakesAreHeardAgainAfterTheirConnectionWasLost(t *testing.T) {
	t.Parallel()
	l := listen(sandboxOn(t, servertest.RedisOptions(servertest.OwnRedis(t).Addr()), "own", 4))
	l.hears("at first")
	for range 3 {
		l.ok(l.rdb.Do(l.ctx(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
		l.hears("after the connection was lost")
	}
}

func TestAPlacementThatIsPutInForceIsHeardOf(t *testing.T) {
	t.Parallel()
	l := listen(newSandbox(t, 4))
	l.hears("before the change")
	for _, shards := range []int{5, 3} {
		before := l.changes.Load()
		l.begin(shards)
		_, err := l.Finish(l.ctx(), l.p)
		l.ok(err)
		l.p = l.placed()
		eventually(l.t, "both steps of the change are heard of", func() bool { return l.changes.Load() == before+2 })
	}
}

func TestWakesAreHeardFromWhereASlotMoved(t *testing.T) {
	t.Parallel()
	cluster := clusterOfOwn(t)
	t.Cleanup(func() { logNodes(t, cluster) })
	l := listen(sandboxOn(t, servertest.RedisOptions(strings.Join(cluster.Addrs(), ",")), "own", 4))
	l.hears("at first")
	slot, err := l.rdb.ClusterKeySlot(l.ctx(), l.Shard(0).Wake()).Result()
	l.ok(err)
	for _, to := range cluster.Nodes {
		l.ok(cluster.MoveSlot(l.ctx(), int(slot), to, 0))
		l.hears("after its slot moved")
	}
}

// logNodes logs how each node of a cluster sees the cluster, if the test failed.
func logNodes(t *testing.T, cluster *servers.RedisCluster) {
	if !t.Failed() {
		return
	}
	for _, addr := range cluster.Addrs() {
		node := redis.NewClient(&redis.Options{Addr: addr})
		nodes, err := node.ClusterNodes(context.Background()).Result()
		t.Logf("%s sees:\n%s%v", addr, nodes, err)
		_ = node.Close()
	}
}
