package scanner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// worker attends one shard a tick.
type worker struct {
	*topic
	index  int
	name   string    // the claimant, unique in the fleet
	turn   time.Time // no step of moving before it
	retry  backoff
	silent bool // an outage was logged and is not over
}

// run draws a ticket every tick and attends the shard it stands for, until ctx
// ends or the topic needs fewer workers. Ticks keep to one beat, so that the
// order of draws in the fleet stays as it is. The first is cut short at random:
// workers that start together shall not draw together.
func (w *worker) run(ctx context.Context) {
	end := time.Now().Add(jitter(w.settings().Tick))
	defer w.forgive()
	for ctx.Err() == nil && w.index < w.wanted() {
		at, p, err := w.draw(ctx)
		if err != nil {
			w.outage(ctx, "draw", err)
			continue
		}
		w.attend(ctx, at, p, end)
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

// draw takes a ticket and reads the placement.
func (w *worker) draw(ctx context.Context) (int, shard.Placement, error) {
	ticket, p, err := w.shard.Draw(ctx)
	if err != nil {
		return 0, p, err
	}
	w.learn(p)
	return balance.Shard(ticket, p.Scanned()), p, nil
}

// attend stays with a shard until the tick ends: claims what is due and forwards
// it, claims again while there is more, else waits for the next due time, a
// wake-up or the end. Beside that it moves what is misplaced: a task that comes due
// meanwhile doesn't wait for a step of moving. Another length of the tick, fewer
// workers, and another number of shards to attend end it at once.
func (w *worker) attend(ctx context.Context, at int, p shard.Placement, end time.Time) {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	bell, leave := w.bells.attend(at)
	defer leave()
	var moving sync.WaitGroup
	defer moving.Wait()
	moving.Go(func() { w.mover(at, p).run(ctx) })
	empty, tick, scanned := true, w.settings().Tick, w.scanned()
	for ctx.Err() == nil && w.settings().Tick == tick && w.scanned() == scanned && w.index < w.wanted() {
		changed := w.changes()
		claimed, next, err := w.serve(ctx, at)
		if err != nil {
			w.unserved(ctx, at, err)
			continue
		}
		w.recovered(ctx)
		empty = empty && claimed == 0
		w.await(ctx, next, bell, changed)
	}
	cancel() // for the mover
	w.metrics.Tick(empty)
}

// moment is an instant of Redis's clock as this process will see it come.
type moment struct {
	local time.Time // zero: never
	redis int64     // ms
}

// serve claims one batch as soon as the topic may, and hands it over to be
// forwarded. It answers how many it claimed and when to look again.
func (w *worker) serve(ctx context.Context, at int) (claimed int, next moment, err error) {
	room := w.room(ctx)
	if room == 0 {
		return 0, moment{local: time.Now()}, nil
	}
	allowed, wait, err := w.allowed(ctx, room)
	if err != nil || allowed == 0 {
		w.window.free(room)
		return 0, moment{local: time.Now().Add(wait)}, err
	}
	w.window.free(room - allowed)
	return w.claim(ctx, at, allowed)
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

// claim leases up to limit tasks and forwards them. Its places in the window
// are taken already. A claim whose reply was lost is asked for again until it is
// heard or its lease would be over: the shard remembers the batch.
func (w *worker) claim(ctx context.Context, at, limit int) (int, moment, error) {
	s := w.settings()
	asked := time.Now()
	batch, err := w.insist(ctx, w.newClaim(at, limit, s.Lease), asked)
	if err != nil {
		w.window.free(limit)
		return 0, moment{}, &claimError{err}
	}
	heard := time.Now()
	w.metrics.Claimed(heard.Sub(asked))
	w.works(ctx, at, "claim")
	w.unused(ctx, limit-len(batch.Tasks))
	w.window.free(limit - len(batch.Tasks) - len(batch.Bad))
	w.complain(ctx, at, batch)
	w.forward(ctx, flight{topic: w.topic, shard: at, asked: asked, heard: heard, batch: batch, settings: s})
	next := moment{}
	if !batch.Next.IsZero() {
		next = moment{heard.Add(batch.Next.Sub(batch.Now)), batch.Next.UnixMilli()}
	}
	return len(batch.Tasks), next, nil
}

func (w *worker) newClaim(at, limit int, lease time.Duration) shard.Claim {
	return shard.Claim{Shard: at, Claimant: w.name, Request: w.request(), Limit: limit, Lease: lease}
}

// claimError is what a claim ended with, to tell it from what other calls of a tick
// end with.
type claimError struct{ error }

func (e *claimError) Unwrap() error { return e.error }

// insist sends one claim until its answer is heard. It outlives the tick, and a
// scanner that is told to stop: what it leased must be forwarded or given back. A
// claim that was certainly not carried out, and one that Redis refuses, ends at once:
// it would only keep its worker from the other shards.
func (w *worker) insist(ctx context.Context, c shard.Claim, asked time.Time) (shard.Batch, error) {
	sure := context.WithoutCancel(ctx)
	var retry backoff
	lost := false // a claim that may have been carried out
	for {
		batch, err := w.shard.Claim(sure, c)
		lost = lost || shard.Unknown(err)
		if !lost || err == nil || shard.Definite(err) || time.Since(asked) > c.Lease || w.closing() {
			return batch, err
		}
		w.refuse(ctx, "claim", err)
		retry.wait(sure)
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
	n, wait, err := w.shard.Grant(context.WithoutCancel(ctx), rate, want, burst)
	return n, max(wait, rateRest), err
}

// unused gives back what of the rate was not needed.
func (w *worker) unused(ctx context.Context, n int) {
	rate := w.settings().Rate
	if rate == 0 || n <= 0 {
		return
	}
	if _, _, err := w.shard.Grant(context.WithoutCancel(ctx), rate, -n, rateBurst); err != nil {
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

// await waits for the next due time, an earlier one that the bell tells of, a
// change of the settings, or the end of the tick.
func (w *worker) await(ctx context.Context, next moment, bell *bell, changed <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if !next.local.IsZero() {
			timer.Reset(time.Until(next.local))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			return
		case <-timer.C:
			return
		case <-bell.rung:
			score := bell.take()
			if next.redis == 0 {
				return // no clock to compare it with: look
			}
			if score < next.redis {
				next.local = next.local.Add(time.Duration(score-next.redis) * time.Millisecond)
				next.redis = score
			}
		}
	}
}

// unserved notes why a claim, or what comes before it, failed, and backs off. What is
// wrong with one shard is no outage: the worker goes on to the next one when the tick
// ends.
func (w *worker) unserved(ctx context.Context, at int, err error) {
	var claim *claimError
	if !errors.As(err, &claim) || !shard.Definite(err) {
		w.outage(ctx, "claim", err)
		return
	}
	w.all.Error("claim")
	w.fails(ctx, at, "claim", err)
	w.retry.wait(ctx)
}

// outage notes an error of Redis's once for each outage, and backs off.
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
	w.retry.wait(ctx)
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
	w.retry.reset()
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
