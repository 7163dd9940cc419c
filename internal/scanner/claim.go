package scanner

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

// claimDue claims one batch from a shard whose time has come, if there is one, as soon
// as the topic may, and has it published. It goes on without the answer if that takes
// too long. It returns the time before which no shard is to be claimed from: a topic's
// rate is that of all of them.
func (w *worker) claimDue(ctx context.Context, a *attended) (rest time.Time) {
	if a == nil {
		return time.Time{}
	}
	room := w.room(ctx)
	if room.tasks == 0 {
		return time.Time{}
	}
	allowed, wait, err := w.allowed(ctx, room.tasks)
	if err != nil {
		w.topic.window.keep(room, 0, 0)
		w.outage(ctx, "", "claim", err)
		return time.Now().Add(w.retry.Next())
	}
	if allowed == 0 {
		now := time.Now()
		w.topic.limited.Store(&now)
		w.topic.window.keep(room, 0, 0)
		return time.Now().Add(wait)
	}
	w.claim(ctx, a, w.topic.window.keep(room, allowed, room.bytes))
	return time.Time{}
}

// room waits until the topic isn't paused and the broker takes messages, and
// reserves places in the window for a batch. It returns none if the tick ends first,
// or if the settings have changed.
func (w *worker) room(ctx context.Context) room {
	t := w.topic
	changed := t.changed.Next()
	if t.paused() {
		select {
		case <-ctx.Done():
		case <-changed:
		}
		return room{}
	}
	if err := t.publisher.WaitReady(ctx); err != nil {
		return room{} // the tick is over: the publisher says itself what it lacks
	}
	r, err := t.window.reserve(ctx, w.batch(t.settings().Batch))
	if err != nil {
		return room{} // the tick is over
	}
	return r
}

// batch is how many tasks to ask for, at most as many as the settings say. A claim that
// found all that it asked for is followed by a larger one, any other by one for twice
// what it found: what is reserved in vain keeps others from claiming.
func (w *worker) batch(most int) int {
	if w.asks == 0 {
		return most
	}
	return min(most, max(w.asks, most/leastOfBatch))
}

// A worker asks for an eighth of a batch at least, and after a claim that found all that
// was asked for it asks for four times as much.
const (
	leastOfBatch = 8
	moreOfBatch  = 4
)

// found notes what a claim found of what it asked for.
func (w *worker) found(tasks, asked int) {
	w.asks = max(1, 2*tasks)
	if tasks >= asked {
		w.asks = moreOfBatch * asked
	}
}

// claiming is one claim under way, and its answer.
type claiming struct {
	worker   *worker
	at       *attended
	node     *node
	claim    shard.Claim
	settings *config.Topic
	room     atomic.Pointer[room] // what is reserved for it

	asked, heard time.Time
	batch        shard.Batch
	err          error
}

// claim leases as many tasks of a shard as there is room for, which is reserved already,
// and publishes them. If Redis doesn't answer soon, the worker goes on without the answer
// and gives back the room: what was leased is published when the answer comes, in excess
// of the window if need be. Until then it claims no more from the shard.
func (w *worker) claim(ctx context.Context, a *attended, r room) {
	s, now := w.topic.settings(), time.Now()
	c := &claiming{worker: w, at: a, node: a.node, settings: s, asked: now, claim: w.newClaim(ctx, r, s.Lease)}
	c.room.Store(&r)
	a.claimed = now
	w.begin(a)
	one := w.calls.begin(func(one *call) { c.ask(ctx, one) }, c.note)
	limit := patience(c.node.took)
	if c.node.silent {
		limit = 0
	}
	w.calls.await(ctx, limit, one)
	if one.left {
		c.node.silent = true
		c.node.left++
		c.reserve(0, 0)
	}
}

// reserve changes what is reserved for the claim, and leaves it at that.
func (c *claiming) reserve(tasks, bytes int) {
	c.worker.topic.window.keep(*c.room.Swap(&room{}), tasks, bytes)
}

// ask sends the claim. What the worker didn't wait for is carried out here.
func (c *claiming) ask(ctx context.Context, one *call) {
	c.batch, c.err = c.worker.insist(ctx, c.at.shard, c.claim, c.asked)
	c.heard = time.Now()
	if !one.answered() {
		c.carryOut(context.WithoutCancel(ctx))
	}
}

// carryOut has the tasks published that were claimed.
func (c *claiming) carryOut(ctx context.Context) {
	w, t := c.worker, c.worker.topic
	if c.err != nil {
		c.reserve(0, 0)
		return
	}
	t.metrics.Claimed(c.heard.Sub(c.asked))
	t.health.works(ctx, c.at.shard, "claim")
	c.reserve(len(c.batch.Tasks)+len(c.batch.Bad), bytesOf(c.batch.Tasks))
	w.unused(ctx, c.claim.Limit-len(c.batch.Tasks))
	w.parkBad(ctx, c.at.shard, c.batch)
	d := delivery{topic: t, shard: c.at.shard, asked: c.asked, heard: c.heard, batch: c.batch, settings: c.settings}
	d.publish(ctx)
}

// note has the worker learn what the claim came to.
func (c *claiming) note(ctx context.Context, one *call) {
	w := c.worker
	c.node.took = one.took
	if one.left {
		c.node.left--
	}
	if c.err == nil {
		c.node.silent = false
		w.empty = w.empty && len(c.batch.Tasks) == 0
		w.recovered(ctx, c.node.name)
		w.found(len(c.batch.Tasks), c.claim.Limit)
	}
	if !one.left {
		c.carryOut(ctx)
	}
	if c.err != nil {
		w.failed(ctx, c)
	}
	w.ended(c.at, func(a *attended) {
		if c.err != nil { // the others are served meanwhile
			a.fail(a.retry.Next())
		} else {
			a.learnClaimed(c.asked, c.heard, c.batch)
		}
	})
}

// failed notes why a claim failed.
func (w *worker) failed(ctx context.Context, c *claiming) {
	if shard.Definite(c.err) { // what is wrong with the shard alone is no outage
		w.topic.health.fails(ctx, c.at.shard, "claim", c.err)
	} else {
		w.outage(ctx, c.node.name, "claim", c.err)
	}
}

// newClaim is a claim of a worker that stays until ctx ends.
func (w *worker) newClaim(ctx context.Context, r room, lease time.Duration) shard.Claim {
	c := shard.Claim{Claimant: w.name, Request: w.topic.request(), Limit: r.tasks, Bytes: r.records(), Lease: lease, Grace: grace}
	if end, ok := ctx.Deadline(); ok {
		c.Stay = time.Until(end)
	}
	return c
}

// insist sends one claim until its answer is heard. It outlives the tick, and a
// scanner that is told to stop: what it leased must be forwarded or given back. A
// claim that was certainly not carried out, and one that Redis refuses, ends at once:
// it would only keep its worker from the other shards.
func (w *worker) insist(ctx context.Context, at int, c shard.Claim, asked time.Time) (shard.Batch, error) {
	sure := context.WithoutCancel(ctx)
	var pause retry.Backoff
	lost := false // a claim that may have been carried out
	for {
		batch, err := w.topic.store.Shard(at).Claim(sure, c)
		lost = lost || shard.Unknown(err)
		if !lost || err == nil || shard.Definite(err) || time.Since(asked) > c.Lease || w.topic.stopped.Load() {
			return batch, err
		}
		w.outages.begin(ctx, w, w.topic.store.Shard(at).Node(sure), "claim", err)
		pause.Wait(sure)
	}
}

// rateBurst is how much of a topic's rate may leave at once, and rateRest how
// long a worker waits at least for more of it, so that it doesn't claim tasks
// one by one.
const (
	rateBurst = 20 * time.Millisecond
	rateRest  = 5 * time.Millisecond
	// ratePatience bounds a call for the rate, on which every claim of the topic waits.
	ratePatience = 2 * time.Second
)

// allowed asks for a share of the topic's rate, if it has one.
func (w *worker) allowed(ctx context.Context, want int) (int, time.Duration, error) {
	rate := w.topic.settings().Rate
	if rate == 0 {
		return want, 0, nil
	}
	burst := max(rateBurst, 2*time.Second/time.Duration(rate))
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), ratePatience)
	defer cancel()
	n, wait, err := w.topic.store.Grant(brief, rate, want, burst)
	if err == nil {
		w.retry.Reset()
		w.recovered(ctx, "")
	}
	return n, max(wait, rateRest), err
}

// unused gives back what of the rate was not needed.
func (w *worker) unused(ctx context.Context, n int) {
	rate := w.topic.settings().Rate
	if rate == 0 || n <= 0 {
		return
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), ratePatience)
	defer cancel()
	if _, _, err := w.topic.store.Grant(brief, rate, -n, rateBurst); err != nil {
		w.topic.log.DebugContext(ctx, "rate not given back", "tasks", n, "error", err)
	}
}

// parkBad parks records that are broken, and logs what could not be claimed.
func (w *worker) parkBad(ctx context.Context, at int, batch shard.Batch) {
	if batch.Skipped > 0 {
		w.topic.notices.skipped.Say(ctx, "shard", at, "tasks", batch.Skipped)
	}
	w.topic.window.written(len(batch.Bad))
	for _, bad := range batch.Bad {
		w.topic.notices.broken.Say(ctx, "shard", at, "id", shard.ShortID(bad.ID), "error", bad.Err)
		w.topic.settler.release(at, shard.Release{Lease: shard.Lease{ID: bad.ID, Token: bad.Token}, Park: true, Reason: bad.Err.Error()})
	}
}
