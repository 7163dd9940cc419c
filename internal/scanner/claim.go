package scanner

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

// claimDue claims one batch from shard a and publishes it; if a is nil, it does nothing.
// It waits for room for a batch, but not for a slow answer. rest is the time before which
// the worker claims from no shard, because the rate is for the whole topic. It is zero if
// there is no such time.
func (w *worker) claimDue(ctx context.Context, a *polledShard) (rest time.Time) {
	if a == nil {
		return time.Time{}
	}
	room := w.room(ctx)
	if room.tasks == 0 {
		return time.Time{}
	}
	allowed, wait, err := w.allowed(ctx, room.tasks)
	if err != nil {
		w.topic.window.keepRoom(room, 0, 0)
		w.outage(ctx, "", "claim", err)
		return time.Now().Add(w.retry.Next())
	}
	if allowed == 0 {
		now := time.Now()
		w.topic.limited.Store(&now)
		w.topic.window.keepRoom(room, 0, 0)
		return time.Now().Add(wait)
	}
	w.claim(ctx, a, w.topic.window.keepRoom(room, allowed, room.bytes))
	return time.Time{}
}

// room reserves places in the window for a batch, as soon as the broker takes messages.
// It returns none if the tick ends first. If the topic is paused, it waits for a change
// and returns none.
func (w *worker) room(ctx context.Context) room {
	t := w.topic
	changed := t.inForce.changed.Next()
	if t.inForce.paused() {
		select {
		case <-ctx.Done():
		case <-changed:
		}
		return room{}
	}
	if err := t.publisher.WaitReady(ctx); err != nil {
		return room{} // the tick is over; the publisher itself reports what is wrong
	}
	r, err := t.window.reserve(ctx, w.batch(t.inForce.settings().Batch))
	if err != nil {
		return room{} // the tick is over
	}
	return r
}

// batch returns how many tasks to ask for, at most as many as the settings allow. After a
// claim that found all it asked for, the next one asks for more. After any other claim,
// the next one asks for twice what that one found: unused reservations keep others from
// claiming.
func (w *worker) batch(most int) int {
	if w.asks == 0 {
		return most
	}
	return min(most, max(w.asks, most/leastOfBatch))
}

// A worker asks for at least an eighth of a batch. After a claim that found all it asked
// for, the worker asks for four times as much.
const (
	leastOfBatch = 8
	moreOfBatch  = 4
)

// found notes how many tasks a claim found, and how many it asked for.
func (w *worker) found(tasks, asked int) {
	w.asks = max(1, 2*tasks)
	if tasks >= asked {
		w.asks = moreOfBatch * asked
	}
}

// claiming is one claim under way, and its answer.
type claiming struct {
	worker   *worker
	at       *polledShard
	node     *node
	claim    shard.Claim
	settings *config.Topic
	room     atomic.Pointer[room] // what is reserved for the claim

	asked, heard time.Time
	batch        shard.Batch
	err          error
}

// claim leases tasks of a shard, as many as there is reserved room for, and publishes
// them. If Redis doesn't answer soon, the worker goes on and gives back the room. When
// the answer comes, the leased tasks are published even if they exceed the window. Until
// then the worker claims no more from the shard.
func (w *worker) claim(ctx context.Context, a *polledShard, r room) {
	s, now := w.topic.inForce.settings(), time.Now()
	c := &claiming{worker: w, at: a, node: a.node, settings: s, asked: now, claim: w.newClaim(ctx, r, s.Lease)}
	c.room.Store(&r)
	a.claimed = now
	w.begin(a)
	one := w.calls.begin(func(one *call) { c.ask(ctx, one) }, c.reportOutcome)
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

// reserve changes what is reserved for the claim to tasks and bytes. From then on the
// claimed tasks hold that.
func (c *claiming) reserve(tasks, bytes int) {
	c.worker.topic.window.keepRoom(*c.room.Swap(&room{}), tasks, bytes)
}

// ask sends the claim. If the worker has given up waiting, ask carries out the answer
// itself.
func (c *claiming) ask(ctx context.Context, one *call) {
	c.batch, c.err = c.worker.retryUntil(ctx, c.at.shard, c.claim, c.asked)
	c.heard = time.Now()
	if !one.answered() {
		c.carryOut(context.WithoutCancel(ctx))
	}
}

// carryOut publishes the claimed tasks and gives back the room that they don't need.
func (c *claiming) carryOut(ctx context.Context) {
	w, t := c.worker, c.worker.topic
	if c.err != nil {
		c.reserve(0, 0)
		return
	}
	t.metrics.Claim.Observe(c.heard.Sub(c.asked).Seconds())
	if len(c.batch.Tasks) > 0 {
		t.found(c.heard)
	}
	t.health.Works(ctx, c.at.shard, "claim")
	c.reserve(len(c.batch.Tasks)+len(c.batch.Bad), bytesOf(c.batch.Tasks))
	w.unused(ctx, c.claim.Limit-len(c.batch.Tasks))
	w.parkBad(ctx, c.at.shard, c.batch)
	d := delivery{topic: t, shard: c.at.shard, asked: c.asked, heard: c.heard, batch: c.batch, settings: c.settings}
	d.publish(ctx)
}

// reportOutcome tells the worker the outcome of the claim.
func (c *claiming) reportOutcome(ctx context.Context, one *call) {
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
	w.ended(c.at, func(a *polledShard) {
		if c.err != nil { // the other shards are served meanwhile
			a.fail(a.retry.Next())
		} else {
			a.learnClaimed(c.asked, c.heard, c.batch)
		}
	})
}

// failed notes why a claim failed.
func (w *worker) failed(ctx context.Context, c *claiming) {
	if shard.Definite(c.err) { // a problem of one shard alone is no outage
		w.topic.health.Fails(ctx, c.at.shard, "claim", c.err)
	} else {
		w.outage(ctx, c.node.name, "claim", c.err)
	}
}

// newClaim returns a claim for a worker that polls the shard until the deadline of ctx.
func (w *worker) newClaim(ctx context.Context, r room, lease time.Duration) shard.Claim {
	c := shard.Claim{Claimant: w.name, Request: w.topic.requests.next(), Limit: r.tasks, Bytes: r.records(), Lease: lease,
		Grace: grace}
	if end, ok := ctx.Deadline(); ok {
		c.Stay = time.Until(end)
	}
	return c
}

// retryUntil sends one claim and repeats it while its answer is lost. The end of ctx doesn't
// interrupt it, because leased tasks must be forwarded or released. It gives up when the
// lease is over or the topic is stopped. It doesn't repeat a claim that was certainly not
// carried out, or that Redis refuses: that would only delay the worker's other shards.
func (w *worker) retryUntil(ctx context.Context, at int, c shard.Claim, asked time.Time) (shard.Batch, error) {
	sure := context.WithoutCancel(ctx)
	var pause retry.Backoff
	lost := false // a claim may have been carried out
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

// rateBurst is how much of a topic's rate may be used at once. rateRest is how long a
// worker waits for more of it at least, so that it doesn't claim tasks one by one.
const (
	rateBurst = 20 * time.Millisecond
	rateRest  = 5 * time.Millisecond
	// ratePatience bounds a call for the rate. Every claim of the topic waits for it.
	ratePatience = 2 * time.Second
)

// allowed returns how many of want tasks the topic's rate allows now. If there are none,
// it returns how long to wait. Without a rate it allows all of them.
func (w *worker) allowed(ctx context.Context, want int) (int, time.Duration, error) {
	rate := w.topic.inForce.settings().Rate
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

// unused gives back the part of the rate that a claim didn't need.
func (w *worker) unused(ctx context.Context, n int) {
	rate := w.topic.inForce.settings().Rate
	if rate == 0 || n <= 0 {
		return
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), ratePatience)
	defer cancel()
	if _, _, err := w.topic.store.Grant(brief, rate, -n, rateBurst); err != nil {
		w.topic.log.DebugContext(ctx, "unused rate not given back", "tasks", n, "error", err)
	}
}

// parkBad parks tasks with broken records. It also logs and counts the tasks that the
// claim skipped.
func (w *worker) parkBad(ctx context.Context, at int, batch shard.Batch) {
	if batch.Skipped > 0 {
		w.topic.logs.skipped.add(ctx, at, batch.Skipped)
	}
	w.topic.window.free(0, len(batch.Bad), 0)
	for _, bad := range batch.Bad {
		w.topic.logs.broken.Log(ctx, "shard", at, "id", shard.ShortID(bad.ID), "error", bad.Err)
		w.topic.settler.release(at, shard.Release{Lease: shard.Lease{ID: bad.ID, Token: bad.Token}, Park: true,
			Reason: bad.Err.Error()})
	}
}
