package scanner

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
)

// A look is given up after lookPatience, which doubles with each one in a row that failed,
// up to mostLookPatience: Redis may be slow, or far away.
const (
	lookPatience     = 500 * time.Millisecond
	mostLookPatience = 4 * time.Second
)

// attendance returns the shards of a tick that begins: the time of all has come. One that
// this scanner has not claimed from yet, or in vain, is claimed from and not looked at:
// what a claim lacks, a right for example, shows at once and not when something is due.
func (w *worker) attendance(ctx context.Context, shards []int) attendance {
	all, now, nodes := make(attendance, len(shards)), time.Now(), map[string]bool{}
	for i, at := range shards {
		all[i] = &attended{shard: at, node: w.nodeOf(ctx, at), next: now, unseen: w.topic.health.proven(at), busy: w.busy[at] != nil}
		nodes[all[i].node.name] = true
	}
	w.outages.keep(ctx, w, nodes)
	return all
}

// begin notes that a call about a shard is under way.
func (w *worker) begin(a *attended) {
	a.busy, a.woken = true, false
	w.busy[a.shard] = a
}

// ended notes what a call about a shard came to, and what the worker was told of the shard
// meanwhile. If the call began in another tick, the shard is looked at: in between the
// worker may have been told nothing.
func (w *worker) ended(began *attended, learn func(*attended)) {
	delete(w.busy, began.shard)
	began.busy = false
	learn(began)
	if began.woken {
		began.woken = false
		attendance{began}.wake(began.shard, began.score)
	}
	for _, a := range w.all {
		if a.shard == began.shard && a != began {
			a.busy, a.unseen, a.next = false, !began.heard.IsZero(), time.Now()
			if began.heard.IsZero() { // it failed
				a.unseen, a.next, a.retry = began.unseen, began.next, began.retry
			}
		}
	}
}

// look finds out when the shards that nothing is known of need attention, in one round
// trip, or in one for each node of a cluster at the same time. A node that didn't answer
// before is not waited for.
func (w *worker) look(ctx context.Context) {
	var awaited []*call
	var nodes []*node
	for n, unseen := range w.all.unseen(time.Now()) {
		one := w.beginLook(ctx, n, unseen)
		if !n.silent {
			awaited, nodes = append(awaited, one), append(nodes, n)
		}
	}
	if len(awaited) == 0 {
		return
	}
	w.calls.await(ctx, patience, awaited...)
	for i, one := range awaited {
		nodes[i].silent = nodes[i].silent || one.left
	}
}

// beginLook looks at shards of one node. Those that can't be reached are looked at again
// together; one that Redis refuses is claimed from, which tells why.
func (w *worker) beginLook(ctx context.Context, n *node, unseen attendance) *call {
	shards := make([]int, len(unseen))
	for i, a := range unseen {
		shards[i] = a.shard
		w.begin(a)
	}
	limit := min(lookPatience<<min(n.looks, 10), mostLookPatience)
	var attention []shard.Attention
	var heard time.Time
	ask := func(*call) {
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		attention, heard = w.topic.store.Attention(brief, shards...), time.Now()
	}
	return w.calls.begin(ask, func(ctx context.Context, _ *call) { w.looked(ctx, n, unseen, attention, heard) })
}

// looked notes what a look at shards of a node came to.
func (w *worker) looked(ctx context.Context, n *node, unseen attendance, attention []shard.Attention, heard time.Time) {
	var pause time.Duration
	for i, a := range unseen {
		seen := attention[i]
		if seen.Err != nil && !shard.Definite(seen.Err) && pause == 0 {
			pause = a.retry.Next()
			n.looks++
			w.outage(ctx, n.name, "claim", seen.Err)
		}
		w.ended(a, func(a *attended) {
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
		n.silent, n.looks = false, 0
		w.recovered(ctx, n.name)
	}
}
