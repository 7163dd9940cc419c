package scanner

import (
	"cmp"
	"context"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
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
	w.outages.keepNodes(ctx, w, nodes)
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
				a.setAttention(heard, seen.Now, seen.Next)
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

// polledShard is one shard that a worker polls for a tick.
type polledShard struct {
	shard int
	node  *node // that holds it, as last known
	// next is when to look at the shard, or else to claim from it, by this process's
	// clock. Zero means not before a wake-up.
	next time.Time
	// unseen shards are looked at, which reserves and leases nothing.
	unseen bool
	// heard is when Redis's clock showed now; zero means that it isn't known.
	heard, now time.Time
	claimed    time.Time // when this tick last claimed from it.
	rest       time.Time // no claim before it, so that more comes due meanwhile.
	other      time.Time // until when another worker is the primary, by this process's clock; zero: none is.
	retry      retry.Backoff
	// busy means that a look or a claim is under way. woken means that meanwhile a task
	// with this score became the earliest.
	busy, woken bool
	score       int64
}

// ready reports whether the worker may look at the shard or claim from it when its time
// comes.
func (a *polledShard) ready() bool {
	return !a.busy && (a.unseen || a.node == nil || a.node.left < mostLeft)
}

// grace is how long a worker leaves due tasks to the primary of the shard. The primary
// rests for less than that between two claims.
const grace = 15 * time.Millisecond

// A worker spends only a share of its time on claims of a shard. If a claim took d, the
// next one begins no sooner than restFactor x d after the beginning of the first. The
// limit of that time is mostRest. So when Redis and the machine are busier, more tasks
// share a claim. When they aren't, tasks don't wait. Network cards moderate their
// interrupts in this way. See docs/adr/0014.
const (
	restFactor = 4
	mostRest   = 5 * time.Millisecond
)

// polledShards is the shards that a worker polls in a tick.
type polledShards []*polledShard

// first returns the shard whose time comes first; nil if none has a time.
func (all polledShards) first() (first *polledShard) {
	for _, a := range all {
		if a.ready() && !a.next.IsZero() && (first == nil || a.next.Before(first.next)) {
			first = a
		}
	}
	return first
}

// due returns the shard to claim from now; nil if no shard's time has come. Among those
// whose time has come, it chooses the shard that was claimed from longest ago. So a shard
// with an old backlog doesn't delay the others.
func (all polledShards) due(now time.Time) (first *polledShard) {
	for _, a := range all {
		if a.unseen || !a.ready() || a.next.IsZero() || a.next.After(now) {
			continue
		}
		if first == nil || cmp.Or(a.claimed.Compare(first.claimed), a.next.Compare(first.next)) < 0 {
			first = a
		}
	}
	return first
}

// unseen returns the shards to look at now, by node.
func (all polledShards) unseen(now time.Time) map[*node]polledShards {
	var found map[*node]polledShards
	for _, a := range all {
		if a.unseen && !a.busy && !a.next.After(now) {
			if found == nil {
				found = map[*node]polledShards{}
			}
			found[a.node] = append(found[a.node], a)
		}
	}
	return found
}

// wake notes that a task with this score, in Redis ms, became the earliest of a shard. If
// a call about the shard is under way, the score is kept for its end. A shard that wasn't
// looked at, or that failed, has a time already.
func (all polledShards) wake(at int, score int64) {
	for _, a := range all {
		if a.shard == at && a.busy && (!a.woken || score < a.score) {
			a.woken, a.score = true, score
		}
		if a.shard != at || a.busy || a.heard.IsZero() {
			continue
		}
		if next := a.turn(time.UnixMilli(score)); a.next.IsZero() || next.Before(a.next) {
			a.next = next
		}
	}
}

// at returns when Redis's clock will show an instant, by this process's clock.
func (a *polledShard) at(instant time.Time) time.Time { return a.heard.Add(instant.Sub(a.now)) }

// turn returns when to claim a task that is due at an instant, by this process's clock.
// That is when it is due, but not before the shard's rest is over. If another worker is
// the primary, it has grace more time.
func (a *polledShard) turn(instant time.Time) time.Time {
	t := a.at(instant)
	if t.Before(a.other) {
		t = t.Add(grace)
		if t.After(a.other) {
			t = a.other
		}
	}
	if t.Before(a.rest) {
		t = a.rest
	}
	return t
}

// setAttention notes when the shard needs attention next; zero means not before a wake-up. next
// is by Redis's clock, which showed now when the answer was heard.
func (a *polledShard) setAttention(heard, now, next time.Time) {
	a.heard, a.now, a.unseen, a.next = heard, now, false, time.Time{}
	a.retry.Reset()
	if !next.IsZero() {
		a.next = a.turn(next)
	}
}

// learnClaimed notes the answer to a claim that was sent at asked and answered at heard.
// The shard doesn't rest if the claim left something due.
func (a *polledShard) learnClaimed(asked, heard time.Time, b shard.Batch) {
	a.rest, a.other = time.Time{}, time.Time{}
	if !b.Polled.IsZero() {
		a.other = heard.Add(b.Polled.Sub(b.Now))
	} else if b.Next.After(b.Now) {
		a.rest = asked.Add(min(restFactor*heard.Sub(asked), mostRest))
	}
	a.setAttention(heard, b.Now, b.Next)
}

// fail backs off from the shard. The look or claim that failed is repeated after pause.
func (a *polledShard) fail(pause time.Duration) {
	a.heard, a.next = time.Time{}, time.Now().Add(pause)
}
