package shard

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// listening is a topic whose wakes are heard.
type listening struct {
	*sandbox
	*Listening
	listener *Listener
	next     time.Time    // each task is due before the one before
	heard    atomic.Int64 // the last score
	wakes    atomic.Int64
	changes  atomic.Int64
}

func listen(c *sandbox) *listening {
	c.t.Helper()
	l := &listening{sandbox: c, next: time.UnixMilli(c.now()).Add(24 * time.Hour)}
	l.heard.Store(math.MaxInt64)
	l.listener = c.store.NewListener()
	l.Listening = l.listener.Listen(c.Topic, Hearing{
		Woken: func(_ int, score int64) {
			l.wakes.Add(1)
			l.heard.Store(score)
		},
		Placed: func() { l.changes.Add(1) }, Listens: func(error) {},
	})
	l.Shards(c.p.Shards)
	check.Background(c.t, "Listener", func(ctx context.Context) error {
		l.listener.Run(ctx)
		return nil
	})
	return l
}

// hears puts tasks, each the earliest, until one of them is heard of.
func (l *listening) hears(when string) {
	l.t.Helper()
	first := l.next.Add(-time.Second).UnixMilli()
	looks := 0
	check.Until(l.t, "a wake is heard "+when, func() bool {
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
		check.OK(l.t, l.rdb.Do(l.t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
		l.hears("after the connection was lost")
	}
}

// TestAPutTellsOfItsSoonestTask: wherever it stands in the call, and only if no task waits that is
// due no later.
func TestAPutTellsOfItsSoonestTask(t *testing.T) {
	t.Parallel()
	l := listen(newSandbox(t, 1))
	l.hears("at first")
	put := func(hours ...int) {
		t.Helper()
		b := Put{}
		for _, h := range hours {
			b.Entries = append(b.Entries, entry(string(NewOp()), task.At(l.next.Add(-time.Duration(h)*time.Hour))))
		}
		check.OK(t, l.tryPut(l.p, b).Err)
	}
	hears := func(hours int) {
		t.Helper()
		soonest := l.next.Add(-time.Duration(hours) * time.Hour).UnixMilli()
		check.Until(t, "the soonest is heard of", func() bool { return l.heard.Load() == soonest })
	}
	put(1, 3, 2)
	hears(3)
	before := l.wakes.Load()
	put(2, 3)
	put(1)
	put(4, 6, 5)
	hears(6)
	check.Equal(t, "wakes", l.wakes.Load()-before, 1)
}

func TestAPlacementThatIsPutInForceIsHeardOf(t *testing.T) {
	t.Parallel()
	l := listen(newSandbox(t, 4))
	l.hears("before the change")
	for _, shards := range []int{5, 3} {
		before := l.changes.Load()
		l.begin(shards)
		_, err := l.Finish(l.t.Context(), l.p)
		check.OK(l.t, err)
		l.p = l.placed()
		check.Until(l.t, "both steps of the change are heard of", func() bool { return l.changes.Load() == before+2 })
	}
}

func TestWakesAreHeardFromWhereASlotMoved(t *testing.T) {
	t.Parallel()
	cluster := servertest.OwnRedisCluster(t)
	t.Cleanup(func() { logNodes(t, cluster) })
	l := listen(sandboxOn(t, servertest.RedisOptions(strings.Join(cluster.Addrs(), ",")), "own", 4))
	l.hears("at first")
	slot, err := l.rdb.ClusterKeySlot(l.t.Context(), l.Shard(0).Wake()).Result()
	check.OK(l.t, err)
	for _, to := range cluster.Nodes {
		check.OK(l.t, cluster.MoveSlot(l.t.Context(), int(slot), to, 0))
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

// TestTopicsShareAConnection: 40 topics on one server have one connection, and a topic that is
// listened to again isn't ended by its predecessor.
func TestTopicsShareAConnection(t *testing.T) {
	t.Parallel()
	l := listen(sandboxOn(t, servertest.RedisOptions(servertest.OwnRedis(t).Addr()), "own", 4))
	others := make([]*Listening, 40)
	for i := range others {
		others[i] = l.listener.Listen(l.store.Topic("other"+strconv.Itoa(i)), Hearing{Listens: func(error) {}})
		others[i].Shards(30)
	}
	for _, o := range append(others, l.Listening) {
		check.Until(t, "every message is heard", func() bool { _, all := o.Heard(); return all })
	}
	clients, err := l.rdb.ClientList(l.t.Context()).Result()
	check.OK(l.t, err)
	if n := strings.Count(clients, " ssub=1"); n != 1 || !strings.Contains(clients, " ssub=1245 ") {
		t.Errorf("%d connections that subscribe, want 1 with 1245 channels:\n%s", n, clients)
	}
	before := l.Listening
	l.Listening = l.listener.Listen(l.Topic, before.hearing)
	l.Shards(l.p.Shards)
	before.Close()
	l.hears("when it is listened to again")
	check.OK(l.t, l.Shard(2).Wakeup(l.t.Context(), l.next.Add(-time.Hour)))
	check.Until(t, "a wake-up without a task", func() bool { return l.heard.Load() == l.next.Add(-time.Hour).UnixMilli() })
	others[0].Shards(2)
	others[1].Close()
	check.OK(l.t, l.rdb.Do(l.t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
	check.Until(t, "only wanted channels are subscribed to", func() bool {
		clients, err := l.rdb.ClientList(l.t.Context()).Result()
		return err == nil && strings.Contains(clients, " ssub=1186 ")
	})
}

// TestALostConnectionIsHeardOf: the number of renewals says that messages may have been lost.
func TestALostConnectionIsHeardOf(t *testing.T) {
	t.Parallel()
	l := listen(sandboxOn(t, servertest.RedisOptions(servertest.OwnRedis(t).Addr()), "own", 4))
	heard := func() (renewals uint64) {
		check.Until(t, "every message is heard", func() (all bool) { renewals, all = l.Heard(); return all })
		return renewals
	}
	first := heard()
	l.hears("at first")
	if now := heard(); now != first {
		t.Errorf("%d renewals, then %d while nothing was lost", first, now)
	}
	check.OK(l.t, l.rdb.Do(l.t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
	check.Until(t, "the loss is noted", func() bool { now, all := l.Heard(); return all && now != first })
}
