package scanner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// worker attends some shards a tick: one, or as many as it takes where a topic has
// more than its scanners have workers for.
type worker struct {
	*topic
	index  int
	name   string    // the claimant, unique in the fleet
	turn   time.Time // no step of moving before it
	retry  retry.Backoff
	silent bool // an outage was logged and is not over
}

// run draws tickets every tick and attends the shards they stand for, until ctx
// ends or the topic needs fewer workers. Ticks keep to one beat, so that the
// order of draws in the fleet stays as it is. The first is cut short at random:
// workers that start together shall not draw together.
func (w *worker) run(ctx context.Context) {
	end := time.Now().Add(jitter(w.settings().Tick))
	defer w.forgive()
	for ctx.Err() == nil && w.index < w.wanted() {
		d, err := w.draw(ctx)
		if err != nil {
			w.outage(ctx, "draw", err)
			w.retry.Wait(ctx)
			continue
		}
		w.attend(ctx, d, end)
		end = nextEnd(end, time.Now(), w.settings().Tick)
	}
}

// nextEnd is when the tick ends that begins now. One that was cut short leaves its rest
// to the next, which keeps the beat.
func nextEnd(end, now time.Time, tick time.Duration) time.Time {
	if !end.After(now) {
		end = end.Add(tick)
	}
	if left := end.Sub(now); left <= 0 || left > tick {
		return now.Add(tick)
	}
	return end
}

// drawn is what a worker drew for a tick.
type drawn struct {
	shards    []int
	placement shard.Placement
	// What the draw went by; when it is another one, the worker draws anew.
	tick    time.Duration
	scanned int
}

// draw takes tickets and reads the placement.
func (w *worker) draw(ctx context.Context) (drawn, error) {
	d := drawn{tick: w.settings().Tick, scanned: w.scanned()}
	_, tickets := w.scale()
	var err error
	if d.shards, d.placement, err = balance.Draw(ctx, w.store, tickets); err == nil {
		w.learn(d.placement)
	}
	return d, err
}

// holds reports whether a draw still goes by what is in force, and the topic still
// needs this worker.
func (w *worker) holds(d drawn) bool {
	return w.settings().Tick == d.tick && w.scanned() == d.scanned && w.index < w.wanted()
}

// attend stays with its shards until the tick ends: claims what is due and forwards
// it, from one shard after the other, and again while there is more; else waits for
// the next due time of any, a wake-up or the end. Beside that it moves what is
// misplaced: a task that comes due doesn't wait for it. Settings that end the tick
// sooner end it at once.
func (w *worker) attend(ctx context.Context, d drawn, end time.Time) {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	bell, leave := w.bells.attend(d.shards...)
	defer leave()
	var moving sync.WaitGroup
	defer moving.Wait()
	moving.Go(func() { w.move(ctx, d.shards, d.placement) })
	all, empty := w.posts(d.shards), true
	for ctx.Err() == nil && w.holds(d) {
		changed := w.changes()
		w.look(ctx, all)
		claimed, rest := w.serve(ctx, all.due(time.Now()))
		empty = empty && claimed == 0
		w.await(ctx, all, rest, bell, changed)
	}
	cancel() // for the mover
	w.metrics.Tick(empty)
}

// serve claims one batch from a shard whose time has come, if there is one, as soon as
// the topic may, and hands it over to be forwarded. It returns how many it claimed, and
// before when no shard is served: a topic's rate is that of all of them.
func (w *worker) serve(ctx context.Context, p *post) (claimed int, rest time.Time) {
	if p == nil {
		return 0, time.Time{}
	}
	room := w.room(ctx)
	if room == 0 {
		return 0, time.Time{}
	}
	allowed, wait, err := w.allowed(ctx, room)
	w.window.free(room - allowed)
	if err != nil {
		w.outage(ctx, "claim", err)
		return 0, time.Now().Add(w.retry.Next())
	}
	if allowed == 0 {
		return 0, time.Now().Add(wait)
	}
	p.served = time.Now()
	claimed, err = w.claim(ctx, p, allowed)
	if err != nil {
		w.unserved(ctx, p, err)
	}
	return claimed, time.Time{}
}

// room waits until the topic isn't paused and the broker takes messages, and
// reserves places in the window for a batch. It answers 0 if the tick ends first,
// or if the settings have changed.
func (w *worker) room(ctx context.Context) int {
	s := w.settings()
	if s.Paused {
		w.awaitChange(ctx)
		return 0
	}
	if err := w.publisher.WaitReady(ctx); err != nil {
		return 0 // the tick is over: the publisher says itself what it lacks
	}
	n, err := w.window.reserve(ctx, s.Batch)
	if err != nil {
		return 0 // the tick is over
	}
	return n
}

// claim leases up to limit tasks of a shard and forwards them. Its places in the
// window are taken already. A claim whose reply was lost is asked for again until it is
// heard or its lease would be over: the shard remembers the batch.
func (w *worker) claim(ctx context.Context, p *post, limit int) (int, error) {
	s := w.settings()
	asked := time.Now()
	batch, err := w.insist(ctx, p.shard, w.newClaim(limit, s.Lease), asked)
	if err != nil {
		w.window.free(limit)
		return 0, err
	}
	heard := time.Now()
	p.learn(heard, batch.Now, batch.Next)
	w.metrics.Claimed(heard.Sub(asked))
	w.recovered(ctx)
	w.works(ctx, p.shard, "claim")
	w.prove(p.shard, true)
	w.unused(ctx, limit-len(batch.Tasks))
	w.window.free(limit - len(batch.Tasks) - len(batch.Bad))
	w.complain(ctx, p.shard, batch)
	w.forward(ctx, flight{topic: w.topic, shard: p.shard, asked: asked, heard: heard, batch: batch, settings: s})
	return len(batch.Tasks), nil
}

func (w *worker) newClaim(limit int, lease time.Duration) shard.Claim {
	return shard.Claim{Claimant: w.name, Request: w.request(), Limit: limit, Lease: lease}
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
		batch, err := w.store.Shard(at).Claim(sure, c)
		lost = lost || shard.Unknown(err)
		if !lost || err == nil || shard.Definite(err) || time.Since(asked) > c.Lease || w.closing() {
			return batch, err
		}
		w.refuse(ctx, "claim", err)
		pause.Wait(sure)
	}
}

// rateBurst is how much of a topic's rate may leave at once, and rateRest how
// long a worker waits at least for more of it, so that it doesn't claim tasks
// one by one.
const (
	rateBurst = 20 * time.Millisecond
	rateRest  = 5 * time.Millisecond
)

// allowed asks for a share of the topic's rate, if it has one.
func (w *worker) allowed(ctx context.Context, want int) (int, time.Duration, error) {
	rate := w.settings().Rate
	if rate == 0 {
		return want, 0, nil
	}
	burst := max(rateBurst, 2*time.Second/time.Duration(rate))
	n, wait, err := w.store.Grant(context.WithoutCancel(ctx), rate, want, burst)
	return n, max(wait, rateRest), err
}

// unused gives back what of the rate was not needed.
func (w *worker) unused(ctx context.Context, n int) {
	rate := w.settings().Rate
	if rate == 0 || n <= 0 {
		return
	}
	if _, _, err := w.store.Grant(context.WithoutCancel(ctx), rate, -n, rateBurst); err != nil {
		w.log.DebugContext(ctx, "rate not given back", "tasks", n, "error", err)
	}
}

// complain reports what could not be claimed, and parks records that are broken.
func (w *worker) complain(ctx context.Context, at int, batch shard.Batch) {
	if batch.Skipped > 0 {
		w.notices.skipped.Say(ctx, "shard", at, "tasks", batch.Skipped)
	}
	for _, bad := range batch.Bad {
		w.notices.broken.Say(ctx, "shard", at, "id", shard.ShortID(bad.ID), "error", bad.Err)
		w.settler.release(at, shard.Release{Lease: shard.Lease{ID: bad.ID, Token: bad.Token}, Park: true, Reason: bad.Err.Error()})
	}
}

// await waits for the next due time, though not for what comes before the end of a
// rest, an earlier one that the bell tells of, a change of the settings, or the end of
// the tick.
func (w *worker) await(ctx context.Context, all posts, rest time.Time, bell *bell, changed <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if first := all.first(); first != nil {
			timer.Reset(time.Until(later(first.next, rest)))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			return
		case <-timer.C:
			return
		case <-bell.rung:
			for at, score := range bell.take() {
				all.wake(at, score)
			}
		}
	}
}

// unserved notes why a claim failed, and backs off from its shard: the others are served
// meanwhile. What is wrong with the shard alone is no outage.
func (w *worker) unserved(ctx context.Context, p *post, err error) {
	p.fail(p.retry.Next())
	if !shard.Definite(err) {
		w.outage(ctx, "claim", err)
		return
	}
	w.prove(p.shard, false)
	w.all.Error("claim")
	w.fails(ctx, p.shard, "claim", err)
}

// outage notes an error of Redis's once for each outage.
func (w *worker) outage(ctx context.Context, operation string, err error) {
	if ctx.Err() != nil {
		return
	}
	w.all.Error(operation)
	if errors.Is(err, task.ErrUnknownTopic) {
		w.learnRemoved()
	} else {
		w.refuse(ctx, operation, err)
	}
}

// refuse keeps why Redis does not serve this worker, and notes it once for each
// outage.
func (w *worker) refuse(ctx context.Context, operation string, err error) {
	why := redisText(err)
	w.refused.Store(&why)
	if !w.silent {
		w.silent = true
		w.log.WarnContext(ctx, "redis does not serve this worker", "worker", w.name, "operation", operation, "error", why)
	}
}

func (w *worker) recovered(ctx context.Context) {
	w.retry.Reset()
	if w.silent {
		w.forgive()
		w.log.InfoContext(ctx, "redis serves this worker again", "worker", w.name)
	}
}

// forgive forgets what this worker complained of; another that complains will do
// so again.
func (w *worker) forgive() {
	if w.silent {
		w.silent = false
		w.refused.Store(nil)
	}
}
