package scanner

import (
	"context"
	"errors"
	"math/rand/v2"
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
	topic  *topic
	index  int
	asks   int       // how many tasks to claim next; 0: nothing is known yet
	name   string    // the claimant, unique in the fleet
	turn   time.Time // no step of moving before it
	retry  retry.Backoff
	silent bool // an outage was logged and is not over
	alarm  *alarm
}

// run draws tickets every tick and attends the shards they stand for, until ctx ends or
// the topic needs fewer workers. Ticks keep to one rhythm, so that the order of draws in
// the fleet stays as it is. The first is cut short at random, so that workers that start
// together don't draw together.
func (w *worker) run(ctx context.Context) {
	w.alarm = newAlarm()
	defer w.alarm.close()
	end := time.Now().Add(rand.N(w.topic.settings().Tick + 1))
	defer w.endOutage()
	for ctx.Err() == nil && w.index < w.topic.workers() {
		d, err := w.draw(ctx)
		if err != nil {
			w.outage(ctx, "draw", err)
			w.retry.Wait(ctx)
			continue
		}
		w.attend(ctx, d, end)
		end = nextEnd(end, time.Now(), w.topic.settings().Tick)
	}
}

// nextEnd is when the tick ends that begins now. One that was cut short leaves its rest
// to the next, which keeps the rhythm.
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
	t := w.topic
	d := drawn{tick: t.settings().Tick, scanned: t.view.scanned()}
	_, tickets := t.scale()
	var err error
	if d.shards, d.placement, err = balance.Draw(ctx, t.store, tickets); err == nil {
		t.view.learn(d.placement)
	}
	return d, err
}

// holds reports whether a draw still goes by what is in force. A worker that the settings
// don't want any more leaves at once; one that is not needed any more because others
// joined stays to the end of the tick, since they have yet to draw its shards.
func (w *worker) holds(d drawn) bool {
	s := w.topic.settings()
	return s.Tick == d.tick && w.topic.view.scanned() == d.scanned && (s.Workers == 0 || w.index < s.Workers)
}

// attend stays with its shards until the tick ends: claims what is due and forwards
// it, from one shard after the other, and again while there is more; else waits for
// the next due time of any, a wake-up or the end. Beside that it moves what is
// misplaced: a task that comes due doesn't wait for it. Settings that end the tick
// sooner end it at once.
func (w *worker) attend(ctx context.Context, d drawn, end time.Time) {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	waiter := w.topic.waiters.add(d.shards...)
	defer waiter.remove()
	var moving sync.WaitGroup
	defer moving.Wait()
	moving.Go(func() { w.move(ctx, d.shards, d.placement) })
	all, empty := w.topic.attendance(d.shards), true
	for ctx.Err() == nil && w.holds(d) {
		changed := w.topic.changed.Next()
		w.look(ctx, all)
		claimed, rest := w.claimDue(ctx, all.due(time.Now()))
		empty = empty && claimed == 0
		w.wait(ctx, all, rest, waiter, changed)
	}
	cancel() // for the movers
	w.topic.metrics.Tick(empty)
}

// attendance returns the shards of a tick that begins: the time of all has come. One that
// this scanner has not claimed from yet, or in vain, is claimed from and not looked at:
// what a claim lacks, a right for example, shows at once and not when something is due.
func (t *topic) attendance(shards []int) attendance {
	all, now := make(attendance, len(shards)), time.Now()
	for i, at := range shards {
		all[i] = &attended{shard: at, next: now, unseen: t.health.proven(at)}
	}
	return all
}

// look finds out when the shards that nothing is known of need attention, all in one
// round trip. Those that can't be reached are looked at again together; one that Redis
// refuses is claimed from, which tells why.
func (w *worker) look(ctx context.Context, all attendance) {
	var unseen attendance
	var shards []int
	now := time.Now()
	for _, a := range all {
		if a.unseen && !a.next.After(now) {
			unseen, shards = append(unseen, a), append(shards, a.shard)
		}
	}
	if len(unseen) == 0 {
		return
	}
	attention := w.topic.store.Attention(context.WithoutCancel(ctx), shards...)
	heard, pause := time.Now(), time.Duration(0)
	for i, a := range unseen {
		switch seen := attention[i]; {
		case seen.Err == nil:
			a.learn(heard, seen.Now, seen.Next)
			w.recovered(ctx)
		case shard.Definite(seen.Err):
			a.unseen = false
		default:
			if own := a.retry.Next(); pause == 0 {
				pause = own
				w.outage(ctx, "claim", seen.Err)
			}
			a.fail(pause)
		}
	}
}

// claimDue claims one batch from a shard whose time has come, if there is one, as soon
// as the topic may, and has it published. It returns how many tasks it claimed, and the
// time before which no shard is to be claimed from: a topic's rate is that of all of
// them.
func (w *worker) claimDue(ctx context.Context, a *attended) (claimed int, rest time.Time) {
	if a == nil {
		return 0, time.Time{}
	}
	room := w.room(ctx)
	if room.tasks == 0 {
		return 0, time.Time{}
	}
	allowed, wait, err := w.allowed(ctx, room.tasks)
	if err != nil {
		w.topic.window.keep(room, 0, 0)
		w.outage(ctx, "claim", err)
		return 0, time.Now().Add(w.retry.Next())
	}
	if allowed == 0 {
		now := time.Now()
		w.topic.limited.Store(&now)
		w.topic.window.keep(room, 0, 0)
		return 0, time.Now().Add(wait)
	}
	a.claimed = time.Now()
	claimed, err = w.claim(ctx, a, w.topic.window.keep(room, allowed, room.bytes))
	if err != nil { // the others are served meanwhile
		a.fail(a.retry.Next())
		if shard.Definite(err) { // what is wrong with the shard alone is no outage
			w.topic.health.fails(ctx, a.shard, "claim", err)
		} else {
			w.outage(ctx, "claim", err)
		}
	}
	return claimed, time.Time{}
}

// room waits until the topic isn't paused and the broker takes messages, and
// reserves places in the window for a batch. It returns none if the tick ends first,
// or if the settings have changed.
func (w *worker) room(ctx context.Context) room {
	t := w.topic
	changed := t.changed.Next()
	s := t.settings()
	if s.Paused {
		select {
		case <-ctx.Done():
		case <-changed:
		}
		return room{}
	}
	if err := t.publisher.WaitReady(ctx); err != nil {
		return room{} // the tick is over: the publisher says itself what it lacks
	}
	r, err := t.window.reserve(ctx, w.batch(s.Batch))
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

// claim leases as many tasks of a shard as there is room for, which is reserved already,
// and publishes them. A claim whose reply was lost is asked for again until it is heard
// or its lease would be over: the shard remembers the batch.
func (w *worker) claim(ctx context.Context, a *attended, r room) (int, error) {
	t, s := w.topic, w.topic.settings()
	asked := time.Now()
	batch, err := w.insist(ctx, a.shard, w.newClaim(ctx, r, s.Lease), asked)
	if err != nil {
		t.window.keep(r, 0, 0)
		return 0, err
	}
	heard := time.Now()
	a.learnClaimed(asked, heard, batch)
	t.metrics.Claimed(heard.Sub(asked))
	w.recovered(ctx)
	t.health.works(ctx, a.shard, "claim")
	t.window.keep(r, len(batch.Tasks)+len(batch.Bad), bytesOf(batch.Tasks))
	w.found(len(batch.Tasks), r.tasks)
	w.unused(ctx, r.tasks-len(batch.Tasks))
	w.parkBad(ctx, a.shard, batch)
	d := delivery{topic: t, shard: a.shard, asked: asked, heard: heard, batch: batch, settings: s}
	d.publish(ctx)
	return len(batch.Tasks), nil
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
		w.noteOutage(ctx, "claim", err)
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
	rate := w.topic.settings().Rate
	if rate == 0 {
		return want, 0, nil
	}
	burst := max(rateBurst, 2*time.Second/time.Duration(rate))
	n, wait, err := w.topic.store.Grant(context.WithoutCancel(ctx), rate, want, burst)
	return n, max(wait, rateRest), err
}

// unused gives back what of the rate was not needed.
func (w *worker) unused(ctx context.Context, n int) {
	rate := w.topic.settings().Rate
	if rate == 0 || n <= 0 {
		return
	}
	if _, _, err := w.topic.store.Grant(context.WithoutCancel(ctx), rate, -n, rateBurst); err != nil {
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

// wait returns at the next due time, though not before the end of a rest, after a change
// of the settings, and at the end of the tick. A waiter that is notified of an earlier
// task brings the due time forward.
func (w *worker) wait(ctx context.Context, all attendance, rest time.Time, waiter *waiter, changed <-chan struct{}) {
	for {
		next := time.Hour
		if first := all.first(); first != nil {
			next = max(time.Until(first.next), time.Until(rest))
		}
		w.alarm.set(next)
		select {
		case <-ctx.Done():
			return
		case <-changed:
			return
		case <-w.alarm.rings:
			return
		case <-waiter.notified:
			for at, score := range waiter.take() {
				all.wake(at, score)
			}
		}
	}
}

// outage notes an error of Redis's that is not one shard's.
func (w *worker) outage(ctx context.Context, operation string, err error) {
	if ctx.Err() != nil {
		return
	}
	w.topic.health.errors(operation)
	if errors.Is(err, task.ErrUnknownTopic) {
		w.topic.view.learnRemoved()
	} else {
		w.noteOutage(ctx, operation, err)
	}
}

// noteOutage keeps why Redis does not serve this worker, and logs it once for each
// outage.
func (w *worker) noteOutage(ctx context.Context, operation string, err error) {
	why := redisText(err)
	w.topic.health.outage.Store(&why)
	if !w.silent {
		w.silent = true
		w.topic.log.WarnContext(ctx, "redis does not serve this worker", "worker", w.name, "operation", operation, "error", why)
	}
}

// recovered notes that Redis serves this worker.
func (w *worker) recovered(ctx context.Context) {
	w.retry.Reset()
	if w.silent {
		w.endOutage()
		w.topic.log.InfoContext(ctx, "redis serves this worker again", "worker", w.name)
	}
}

// endOutage forgets the outage that this worker noted; another that waits for Redis
// notes it again.
func (w *worker) endOutage() {
	if w.silent {
		w.silent = false
		w.topic.health.outage.Store(nil)
	}
}
