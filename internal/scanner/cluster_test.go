package scanner

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// clustered is a scanner with many shards on a Redis Cluster of its own. No replica takes
// over from a master that hangs.
type clustered struct {
	*lone
	cluster *servers.RedisCluster
	p       shard.Placement
	ids     int

	mu   sync.Mutex
	seen map[string]int // number of messages by task
}

func newClustered(t *testing.T) *clustered {
	t.Helper()
	cluster := servertest.OwnRedisCluster(t)
	topics := map[string]string{"orders": declaring("orders", "lease: 5s", "tick: 1s", fmt.Sprint("shards: ", many))}
	c := &clustered{lone: newLoneOn(t, strings.Join(cluster.Addrs(), ","), "duefleet", topics, nil), cluster: cluster,
		seen: map[string]int{}}
	c.start()
	c.consume()
	var err error
	c.p, err = c.topic("orders").Placement(t.Context())
	check.OK(c.t, err)
	return c
}

// consume counts what arrives.
func (c *clustered) consume() {
	ch := servertest.Channel(c.t, c.rabbit)
	messages, err := ch.Consume("orders.due", "", true, false, false, false, nil)
	check.OK(c.t, err)
	go func() {
		for m := range messages {
			c.arrived(m)
		}
	}()
}

func (c *clustered) arrived(m amqp.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[m.MessageId]++
}

// arrivals returns how many tasks of some shards arrived, and how many of them more than
// once.
func (c *clustered) arrivals(shards []int) (tasks, repeats int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.seen {
		if slices.Contains(shards, c.p.New(id)) {
			tasks++
			repeats += min(n-1, 1)
		}
	}
	return tasks, repeats
}

// delivers waits until n tasks of some shards have arrived.
func (c *clustered) delivers(n int, shards []int) {
	c.t.Helper()
	check.Count(c.t, "tasks", n, func() int { tasks, _ := c.arrivals(shards); return tasks })
}

// master returns the node that holds a key of the topic.
func (c *clustered) master(key string) *servers.Redis {
	c.t.Helper()
	cluster, ok := c.rdb.(*redis.ClusterClient)
	if !ok {
		c.t.Fatalf("%T is no client of a cluster", c.rdb)
	}
	client, err := cluster.MasterForKey(c.t.Context(), key)
	check.OK(c.t, err)
	for _, n := range c.cluster.Nodes {
		if n.Addr() == client.Options().Addr {
			return n
		}
	}
	c.t.Fatalf("no node has the address %s", client.Options().Addr)
	return nil
}

// split returns the shards that a node holds, and the others.
func (c *clustered) split(node *servers.Redis) (its, others []int) {
	for at := range many {
		if c.master(fmt.Sprintf("duefleet:due:{orders:%d}", at)) == node {
			its = append(its, at)
		} else {
			others = append(others, at)
		}
	}
	return its, others
}

// put stores a task in each of some shards, due at once.
func (c *clustered) put(shards ...int) {
	c.t.Helper()
	var ids []string
	for _, at := range shards {
		id := ""
		for id == "" || c.p.New(id) != at {
			c.ids++
			id = fmt.Sprint("o-", c.ids)
		}
		ids = append(ids, id)
	}
	fixture.StoreUnder(c.t, c.topic("orders"), c.p, fixture.Entries(task.Now(), []byte{0}, ids...)...)
}

// TestAMasterThatHangsHoldsUpNoOtherShard: one master hangs for longer than two leases.
// Tasks of the other masters' shards are still delivered, and once each. In one case the
// master holds only shards, in the other also the topic's tickets.
func TestAMasterThatHangsHoldsUpNoOtherShard(t *testing.T) {
	t.Parallel()
	for name, tickets := range map[string]bool{"with shards alone": false, "with the tickets": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newClustered(t).hang(tickets)
		})
	}
}

// hang lets a master hang for longer than two leases, and delivers tasks of the other
// masters' shards meanwhile, round by round.
func (c *clustered) hang(tickets bool) {
	c.t.Helper()
	hung := c.master("duefleet:ticket:{orders}")
	for _, n := range c.cluster.Nodes {
		if !tickets && n != hung {
			hung = n
			break
		}
	}
	its, others := c.split(hung)
	c.put(append(its, others...)...)
	c.delivers(len(its), its)
	c.delivers(len(others), others)
	rounds := 1
	for range 3 { // some of these are in flight when the master begins to hang
		c.put(append(its, others...)...)
		rounds++
	}
	check.OK(c.t, hung.Pause())
	defer func() { check.OK(c.t, hung.Resume()) }()
	// The master hangs until five rounds have come, so a shard that waits for it fails. How
	// late a task may come is measured with the faults of a cluster.
	for began, n := time.Now(), 0; n < 5 || time.Since(began) < 12*time.Second; n++ {
		c.put(others...)
		rounds++
		c.delivers(rounds*len(others), others)
	}
	check.OK(c.t, hung.Resume())
	c.delivers(4*len(its), its)
	if _, repeats := c.arrivals(others); repeats > 0 {
		c.t.Errorf("%d tasks of the other masters' shards were delivered twice", repeats)
	}
}
