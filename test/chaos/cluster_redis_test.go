//go:build chaos

package chaos_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
)

// clustered is a fleet on a Redis Cluster, whose topic has a shard in each node's
// slots, and whose settings come from Consul.
func clustered(t *testing.T) *rig {
	return newRig(t, options{cluster: true, consul: true, topic: fleet.Topic{"shards": 8}})
}

// master is the node that serves a shard.
func (r *rig) master(shard int) *servers.Redis {
	r.t.Helper()
	n, err := r.cluster.Master(r.t.Context(), shardKey(shard))
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func shardKey(shard int) string { return fmt.Sprintf("duefleet:due:{orders:%d}", shard) }

// flows waits until tasks of all shards that a master had are delivered again.
func (r *rig) flows(what string) {
	r.t.Helper()
	n := r.recorder.Ledger.Count()
	r.await(what, func() bool {
		return r.recorder.Ledger.Count() > n+20*loadBatch && r.status().Topic("orders").Backlog < loadBatch
	})
}

// TestClusterMasterKilled: kill -9 of two masters in turn, with a change of M while
// the second is away; each comes back as a replica.
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

// TestClusterSlotsMoved: the slots of all shards move to the next master, key by
// key, and M changes meanwhile.
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
		r.flows("tasks from where the slots are now")
	}
	r.verdict("Redis Cluster: the slots of all shards moved, twice", allowance{repeats: 3 * inFlight})
}

// moveShard gives a shard's slot to the next of the first three nodes.
func (r *rig) moveShard(shard int) {
	r.t.Helper()
	ctx := r.t.Context()
	slot, err := r.client.ClusterKeySlot(ctx, shardKey(shard)).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	now, next := r.master(shard), r.cluster.Nodes[0]
	for i, n := range r.cluster.Nodes[:2] {
		if n == now {
			next = r.cluster.Nodes[i+1]
		}
	}
	if err := r.cluster.MoveSlot(ctx, int(slot), next, 30*time.Millisecond); err != nil {
		r.t.Fatal(err)
	}
}
