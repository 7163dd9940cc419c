package scanner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const (
	// drowsyTopics have more shards than one pipeline takes. With drowsyShards each, half of them
	// have none on the first of three masters. With four, each has one there.
	drowsyTopics = 150
	drowsyShards = 2
)

// drowsyCluster is a scanner with many topics that sleep, on a Redis Cluster of its own. No replica
// takes over from a master that hangs. Every sleeping topic is looked at, and its placement is read,
// in each pass.
func drowsyCluster(t *testing.T) *clustered {
	t.Helper()
	cluster := servertest.OwnRedisCluster(t)
	topics := map[string]string{}
	for i := range drowsyTopics {
		topics[fmt.Sprintf("topic-%03d", i)] = declaring("orders", fmt.Sprint("shards: ", drowsyShards),
			"exchange: orders", "routing_key: orders.due")
	}
	c := &clustered{lone: newLoneOn(t, strings.Join(cluster.Addrs(), ","), "duefleet", topics, nil), cluster: cluster}
	c.startsAsleep()
	c.quiet, c.sleepers.every, c.sleepers.reads = time.Second, 100*time.Millisecond, 100*time.Millisecond
	c.start()
	for _, v := range c.all() {
		check.Until(t, "the topics to sleep", func() bool { return v.topic.looked() && v.topic.asleep() })
	}
	return c
}

// apart returns the topics that have no key on a node, and those that have a shard there.
func (c *clustered) apart(node *servers.Redis) (elsewhere, there []*topic) {
	c.t.Helper()
	cluster, ok := c.rdb.(*redis.ClusterClient)
	check.Equal(c.t, "a client of a cluster", ok, true)
	holds := func(key string) bool {
		client, err := cluster.MasterForKey(c.t.Context(), key)
		check.OK(c.t, err)
		return client.Options().Addr == node.Addr()
	}
	for _, v := range c.all() {
		shards := 0
		for at := range drowsyShards {
			if holds(fmt.Sprintf("duefleet:due:{%s:%d}", v.topic.name, at)) {
				shards++
			}
		}
		switch {
		case shards > 0:
			there = append(there, v.topic)
		case !holds("duefleet:placement:{" + v.topic.name + "}"):
			elsewhere = append(elsewhere, v.topic)
		}
	}
	return elsewhere, there
}

// TestAMasterThatHangsWakesNoTopicOfAnother: topics with all keys on other masters sleep on, and
// looks at them succeed. The others wake, because their shards can't be looked at.
func TestAMasterThatHangsWakesNoTopicOfAnother(t *testing.T) {
	t.Parallel()
	c := drowsyCluster(t)
	hung := c.cluster.Nodes[0]
	elsewhere, there := c.apart(hung)
	if len(elsewhere) == 0 || len(there) == 0 {
		t.Fatalf("%d topics have no key on the master that hangs, %d have shards there", len(elsewhere), len(there))
	}
	for _, v := range elsewhere {
		later := shard.Entry{ID: "later", When: task.In(time.Hour), Body: []byte{0}}
		fixture.Store(t, v.store, later)
		check.Until(t, "the task to be heard of", func() bool { return c.knows(v) })
	}
	began := time.Now()
	check.OK(t, hung.Pause())
	defer func() { check.OK(t, hung.Resume()) }()
	for _, v := range there {
		check.Until(t, "topics of the master to wake", func() bool { return v.wokenSince(began) })
	}
	for _, v := range elsewhere {
		c.forgets(v)
	}
	var woke []string
	for _, v := range elsewhere {
		check.Until(t, "looks that see the task", func() bool { return c.knows(v) || v.wokenSince(began) })
		if v.wokenSince(began) {
			woke = append(woke, v.name)
		}
	}
	if len(woke) > 0 {
		t.Errorf("of %d topics without a key on the master that hangs, %d woke: %v", len(elsewhere), len(woke), woke)
	}
}

// wokenSince reports whether the topic woke after an instant.
func (t *topic) wokenSince(began time.Time) bool {
	t.sleep.mu.Lock()
	defer t.sleep.mu.Unlock()
	return t.sleep.woken.After(began)
}
