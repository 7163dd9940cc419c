package scanner

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
)

// lookLimit bounds a look at shards, because another server may have taken over. Far from
// Redis a new connection may take a second.
const lookLimit = 4 * time.Second

// polledShards returns the shards to poll in a tick that begins now. All of them need
// attention at once. If this scanner has never claimed from a shard, or its last claim
// failed, the worker claims from it without a look. So a problem such as a missing right
// shows at once, and not only when something is due.
func (w *worker) polledShards(ctx context.Context, shards []int) polledShards {
	all, now, nodes := make(polledShards, len(shards)), time.Now(), map[string]bool{}
	for i, at := range shards {
		all[i] = &polledShard{shard: at, node: w.nodeOf(ctx, at), next: now, unseen: w.topic.health.lastClaimWorked(at),
			busy: w.busy[at] != nil}
		nodes[all[i].node.name] = true
	}
	w.outages.keep(ctx, w, nodes)
	return all
}

// begin notes that a call about a shard is under way.
func (w *worker) begin(a *polledShard) {
	a.busy, a.woken = true, false
	w.busy[a.shard] = a
}

// ended notes the outcome of a call about a shard, and any wake-up that came meanwhile.
// If the call began in an earlier tick, the shard is looked at again: the worker may have
// missed wake-ups in between.
func (w *worker) ended(began *polledShard, learn func(*polledShard)) {
	delete(w.busy, began.shard)
	began.busy = false
	learn(began)
	if began.woken {
		began.woken = false
		polledShards{began}.wake(began.shard, began.score)
	}
	for _, a := range w.all {
		if a.shard == began.shard && a != began {
			a.busy, a.unseen, a.next = false, !began.heard.IsZero(), time.Now()
			if began.heard.IsZero() { // the call failed
				a.unseen, a.next, a.retry = began.unseen, began.next, began.retry
			}
		}
	}
}

// look asks when the shards that nothing is known about need attention. It takes one
// round trip, or one for each node of a cluster at the same time. It doesn't wait for a
// node that didn't answer before.
func (w *worker) look(ctx context.Context) {
	var awaited []*call
	var nodes []*node
	var limit time.Duration
	for n, unseen := range w.all.unseen(time.Now()) {
		one := w.beginLook(ctx, n, unseen)
		if !n.silent {
			awaited, nodes = append(awaited, one), append(nodes, n)
			limit = max(limit, patience(n.took))
		}
	}
	if len(awaited) == 0 {
		return
	}
	w.calls.await(ctx, limit, awaited...)
	for i, one := range awaited {
		nodes[i].silent = nodes[i].silent || one.left
	}
}

// beginLook looks at shards of one node. Shards that can't be reached are looked at again
// together. A shard that Redis refuses is claimed from, because the claim's error says
// why.
func (w *worker) beginLook(ctx context.Context, n *node, unseen polledShards) *call {
	shards := make([]int, len(unseen))
	for i, a := range unseen {
		shards[i] = a.shard
		w.begin(a)
	}
	var attention []shard.Attention
	var heard time.Time
	ask := func(*call) {
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookLimit)
		defer cancel()
		attention, heard = w.topic.store.Attention(brief, shards...), time.Now()
	}
	return w.calls.begin(ask, func(ctx context.Context, one *call) {
		n.took = one.took
		w.looked(ctx, n, unseen, attention, heard)
	})
}

// looked notes the outcome of a look at shards of a node.
func (w *worker) looked(ctx context.Context, n *node, unseen polledShards, attention []shard.Attention,
	heard time.Time) {
	var pause time.Duration
	for i, a := range unseen {
		seen := attention[i]
		if seen.Err != nil && !shard.Definite(seen.Err) && pause == 0 {
			pause = a.retry.Next()
			w.outage(ctx, n.name, "claim", seen.Err)
		}
		w.ended(a, func(a *polledShard) {
			switch {
			case seen.Err == nil:
				a.learn(heard, seen.Now, seen.Next)
			case shard.Definite(seen.Err):
				a.unseen = false
			default:
				a.fail(pause)
			}
		})
	}
	if pause == 0 {
		n.silent = false
		w.recovered(ctx, n.name)
	}
}
