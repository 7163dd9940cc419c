//go:build chaos

package chaos_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
)

// clustered returns a harness on a Redis Cluster with settings in Consul. Every master
// holds shards of the topic.
func clustered(t *testing.T) *harness {
	return newHarness(t, options{cluster: true, consul: true, topic: fleet.Topic{"shards": 8}})
}

// master returns the node that serves a shard.
func (r *harness) master(shard int) *servers.Redis {
	r.t.Helper()
	n, err := r.cluster.Master(r.t.Context(), shardKey(shard))
	check.OK(r.t, err)
	return n
}

func shardKey(shard int) string { return fmt.Sprintf("duefleet:due:{orders:%d}", shard) }

// flows waits until tasks of all shards are delivered again, and status can tell. It can't while no
// server has the list of scanners. Meanwhile tasks of other servers are delivered.
func (r *harness) flows(what string) {
	r.t.Helper()
	n := r.recorder.Ledger.Count()
	r.await(what, func() bool {
		if r.recorder.Ledger.Count() <= n+20*loadBatch {
			return false
		}
		s, err := fleet.ReadStatus(r.t.Context(), programs.Scanner, r.config)
		return err == nil && s.Topic("orders").Backlog < loadBatch
	})
}

// TestClusterMasterKilled: two masters are killed with kill -9, one after the other. M
// changes while the second is down. Each comes back as a replica.
func TestClusterMasterKilled(t *testing.T) {
	r := clustered(t)
	r.begin()
	for i := range 2 {
		victim := r.master(i)
		r.must(victim.Kill())
		if i == 1 {
			r.set("orders", fleet.Topic{"shards": 12})
		}
		r.flows("tasks after a replica took over")
		r.must(victim.Restart(t.Context()))
		r.lasts(5 * time.Second)
	}
	r.verdict("Redis Cluster: two masters killed", allowance{repeats: 2 * 3 * inFlight, lost: loadBatch})
}

// TestClusterSlotsMoved: the slots of all shards move to the next master, key by key, and
// M changes meanwhile.
func TestClusterSlotsMoved(t *testing.T) {
	r := clustered(t)
	r.begin()
	for round := range 2 {
		if round == 1 {
			r.set("orders", fleet.Topic{"shards": 12})
		}
		for s := range 8 {
			r.moveShard(s)
		}
		r.flows("tasks from the masters that have the slots now")
	}
	r.verdict("Redis Cluster: the slots of all shards moved, twice", allowance{repeats: 3 * inFlight})
}

// moveShard moves a shard's slot to the next of the first three nodes.
func (r *harness) moveShard(shard int) {
	r.t.Helper()
	ctx := r.t.Context()
	slot, err := r.client.ClusterKeySlot(ctx, shardKey(shard)).Result()
	check.OK(r.t, err)
	now, next := r.master(shard), r.cluster.Nodes[0]
	for i, n := range r.cluster.Nodes[:2] {
		if n == now {
			next = r.cluster.Nodes[i+1]
		}
	}
	check.OK(r.t, r.cluster.MoveSlot(ctx, int(slot), next, 30*time.Millisecond))
}

// TestClusterMasterHangs: a master is stopped with SIGSTOP for six times the lease. There
// is no failover, since cluster-node-timeout is longer. The master also holds the topic's
// ticket counter. Tasks in the other masters' shards must arrive once, and on time. So must tasks
// there of 199 other topics, whose ticket counters are on the other masters, too.
func TestClusterMasterHangs(t *testing.T) {
	const (
		hangs = 30 * time.Second
		late  = 3 * time.Second // a shard may be without a worker for a tick or two while nobody can draw tickets
	)
	declare := map[string]any{"type": "direct", "queue": queue, "queue_type": "classic"}
	more := map[string]fleet.Topic{}
	for i := range 199 {
		more[fmt.Sprintf("more-%03d", i)] = fleet.Topic{"exchange": "orders", "routing_key": queue, "declare": declare}
	}
	r := newHarness(t, options{cluster: true, nodeTimeout: time.Minute, more: more,
		topic: fleet.Topic{"shards": 8, "lease": "5s"}})
	r.begin()
	r.lasts(2 * time.Second)
	victim, err := r.cluster.Master(t.Context(), "duefleet:ticket:{orders}")
	r.must(err)
	p, others := r.otherMasters(victim, 8)
	neighbours := r.neighbours(victim, more)
	for _, n := range neighbours { // the producer knows their placements from now on
		r.must(r.recorder.Schedule(t.Context(), n.order("first")))
	}
	r.load.stop() // most of its tasks are due later
	r.must(victim.Pause())
	sent, turns := 0, 0
	for began := time.Now(); time.Since(began) < hangs; r.lasts(loadBeat) {
		batch := append(r.ordersIn(p, others, &sent), neighbours[turns%len(neighbours)].order(fmt.Sprint(turns)))
		r.must(r.recorder.Schedule(t.Context(), batch...))
		turns++
	}
	arrived := func(prefix string) int { n, _, _ := r.arrivals.of(prefix); return n }
	r.within(late+2*time.Second, "the other masters' tasks", func() bool {
		return arrived("beside-") == sent && arrived("more-") == turns+len(neighbours)
	})
	_, worst, repeats := r.arrivals.of("beside-")
	_, next, _ := r.arrivals.of("more-")
	r.must(victim.Resume())
	r.verdict("Redis Cluster: a master stopped (SIGSTOP) for 30 s, no failover", allowance{repeats: 3 * inFlight})
	t.Logf("%d shards of the other masters got %d tasks, the latest %s late; %d other topics %d, the latest %s late",
		len(others), sent, worst, len(neighbours), turns, next)
	if next > late {
		t.Errorf("a task of another topic came %s late, want at most %s", next, late)
	}
	if worst > late {
		t.Errorf("a task of the other masters' shards came %s late, want at most %s", worst, late)
	}
	if repeats > 0 {
		t.Errorf("%d tasks of the other masters' shards came twice", repeats)
	}
}

// neighbour is a topic that needs nothing of one master, and one of its shards.
type neighbour struct {
	topic     string
	placement shard.Placement
	shard     int
}

// order returns a task of that shard, due in half a second. Its ID has the suffix.
func (n neighbour) order(suffix string) fleet.Order {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("%s-%d-%s", n.topic, i, suffix); n.placement.New(id) == n.shard {
			return order(n.topic, id, time.Now().Add(500*time.Millisecond))
		}
	}
}

// neighbours returns topics whose own keys are on other masters, each with a shard there.
func (r *harness) neighbours(master *servers.Redis, topics map[string]fleet.Topic) (all []neighbour) {
	r.t.Helper()
	store, err := shard.New(r.client, r.settings.RedisPrefix)
	r.must(err)
	elsewhere := func(key string) bool {
		on, err := r.cluster.Master(r.t.Context(), "duefleet:"+key)
		r.must(err)
		return on != master
	}
	for name := range topics {
		for at := range 4 {
			if elsewhere("ticket:{"+name+"}") && elsewhere(fmt.Sprintf("due:{%s:%d}", name, at)) {
				p, err := store.Topic(name).Placement(r.t.Context())
				r.must(err)
				all = append(all, neighbour{name, p, at})
				break
			}
		}
	}
	if len(all) < len(topics)/3 {
		r.t.Fatalf("%d of %d topics need nothing of the master", len(all), len(topics))
	}
	return all
}

// otherMasters returns the placement of orders, and the topic's shards that another master
// holds.
func (r *harness) otherMasters(master *servers.Redis, shards int) (p shard.Placement, others map[int]bool) {
	r.t.Helper()
	store, err := shard.New(r.client, r.settings.RedisPrefix)
	r.must(err)
	p, err = store.Topic("orders").Placement(r.t.Context())
	r.must(err)
	others = map[int]bool{}
	for at := range shards {
		if r.master(at) != master {
			others[at] = true
		}
	}
	if len(others) == 0 || len(others) == shards {
		r.t.Fatalf("%d of %d shards are on other masters", len(others), shards)
	}
	return p, others
}

// ordersIn makes a batch of tasks for some shards, due in half a second, and adds its
// size to made.
func (r *harness) ordersIn(p shard.Placement, shards map[int]bool, made *int) (batch []fleet.Order) {
	due := time.Now().Add(500 * time.Millisecond)
	for i := 0; len(batch) < loadBatch; i++ {
		if id := fmt.Sprintf("beside-%d-%d", *made, i); shards[p.New(id)] {
			batch = append(batch, order("orders", id, due))
		}
	}
	*made += len(batch)
	return batch
}
