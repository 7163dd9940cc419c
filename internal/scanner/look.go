package scanner

import (
	"context"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
)

// lookLimit is after how long a look is given up, in case another server has taken over.
// It holds up no shard of other nodes. Far from Redis a new connection may take a second.
const lookLimit = 4 * time.Second

// attendance returns the shards of a tick that begins: the time of all has come. One that
// this scanner has not claimed from yet, or in vain, is claimed from and not looked at:
// what a claim lacks, a right for example, shows at once and not when something is due.
// One that a call of the tick before is about stays as it is.
func (w *worker) attendance(ctx context.Context, shards []int) attendance {
	all, now, nodes := make(attendance, len(shards)), time.Now(), map[string]bool{}
	for _, a := range w.busy {
		a.missed = a.missed || !slices.Contains(shards, a.shard)
	}
	for i, at := range shards {
		if all[i] = w.busy[at]; all[i] == nil {
			all[i] = &attended{shard: at, next: now, unseen: w.topic.health.proven(at)}
		}
		all[i].node = w.nodeOf(ctx, at)
		nodes[all[i].node.name] = true
	}
	w.outages.keep(ctx, w, nodes)
	return all
}

// listen has the worker told of tasks in the shards of a tick that begins. What it was told
// since the last tick of shards that a call is about is not lost.
func (w *worker) listen(shards []int) {
	before := w.waiter
	w.waiter = w.topic.waiters.add(shards...)
	if before == nil {
		return
	}
	before.remove()
	for at, score := range before.take() {
		if a := w.busy[at]; a != nil {
			attendance{a}.wake(at, score)
		}
	}
}

// leave ends listening.
func (w *worker) leave() {
	if w.waiter != nil {
		w.waiter.remove()
		w.waiter = nil
	}
}

// begin notes that a call about a shard is under way.
func (w *worker) begin(a *attended) {
	a.busy, a.woken, a.missed = true, false, false
	w.busy[a.shard] = a
}

// ended notes what a call about a shard came to, and what the worker was told of the shard
// meanwhile. If it did not listen all the time, the shard is looked at again.
func (w *worker) ended(a *attended, learn func(*attended)) {
	delete(w.busy, a.shard)
	a.busy = false
	learn(a)
	if a.heard.IsZero() { // it failed, and has a time
		return
	}
	if a.missed {
		a.unseen, a.next = true, time.Now()
	} else if a.woken {
		attendance{a}.wake(a.shard, a.score)
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
	var attention []shard.Attention
	var heard time.Time
	ask := func(*call) {
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookLimit)
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
		n.silent = false
		w.recovered(ctx, n.name)
	}
}
