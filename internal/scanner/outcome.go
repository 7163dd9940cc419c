package scanner

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/settle"
	"github.com/duefleet/duefleet/internal/shard"
)

// item is one task of a claim.
type item struct {
	claim   *claim
	claimed *shard.Claimed
	bytes   int // what it takes of the budget
}

var _ forward.Owner = (*item)(nil)

func (i item) lease() shard.Lease { return i.claimed.Lease() }

// resolved handles the outcomes of messages. The publisher calls it, and publish does for
// tasks that it releases.
func (t *topic) resolved(results []forward.Result) {
	bytes := 0
	for _, r := range results {
		bytes += r.Message.Owner.Resolved(r)
	}
	t.window.Free(0, 0, bytes)
}

// Resolved settles a confirmed task and releases any other. It returns how many bytes of
// the budget that frees.
func (i *item) Resolved(r forward.Result) (freed int) {
	t := i.claim.polling
	t.retries.resolved(*i)
	span := i.spans(r)
	i.forget(r)
	if r.Outcome == forward.Confirmed {
		i.confirmed(r)
		span.end(i, r, false)
		if i.claimed.Recurrence != nil {
			t.settler.Advance(i.claim.shard, i.claimed.Advance(i.claim.clock(time.Now())))
		} else {
			t.settler.Settle(i.claim.shard, i.lease())
		}
		return i.bytes
	}
	back := i.released(r)
	span.end(i, r, back.Park)
	if back.Park && i.claimed.Recurrence != nil {
		t.settler.ParkRun(i.claim.shard, i.parked(back))
	} else {
		t.settler.Release(i.claim.shard, back)
	}
	return i.bytes
}

// clock returns a time by Redis's clock.
func (c *claim) clock(now time.Time) time.Time { return c.batch.Now.Add(now.Sub(c.heard)) }

// parked returns how to park a run of a recurring task: as a task of its own.
func (i *item) parked(back shard.Release) settle.ParkedRun {
	run := shard.RunOf(i.claimed.Task)
	body, _ := shard.Encode(&run) // it was decoded before
	advance := i.claimed.Advance(i.claim.clock(time.Now()))
	advance.Parked = true
	return settle.ParkedRun{Advance: advance, Requeue: shard.Requeue{
		ID: run.ID, Op: shard.NewOp(), Due: run.Due.UnixMilli(), Attempt: run.Attempt, Park: true, Attempts: run.Attempt,
		Scheduled: run.Scheduled.UnixMilli(), Reason: back.Reason, Body: body,
	}}
}

// confirmed counts a task that the broker confirmed.
func (i *item) confirmed(r forward.Result) {
	t, now := i.claim.polling, time.Now()
	late := i.claim.clock(now).Sub(i.claimed.Due)
	t.metrics.forwarded(late)
	t.minute.Forwarded(now, late)
	t.metrics.Confirm.Observe(r.Elapsed.Seconds())
	if i.claimed.Redelivered {
		t.metrics.Redelivered.Inc()
	}
}

// forget drops the payload and the message of an intake, which the rest of the batch would
// keep in memory. It keeps them if the outcome is unknown, because the publisher may still
// be writing them.
func (i item) forget(r forward.Result) {
	switch r.Outcome {
	case forward.Confirmed, forward.Returned, forward.Refused:
		if i.claimed.Recurrence != nil {
			return // the run may be parked
		}
		i.claimed.Payload, r.Message.Task.Payload = nil, nil
		i.claimed.AMQP, r.Message.Task.AMQP = nil, nil
	default:
	}
}

// released returns how to release a task that wasn't confirmed. If the broker returned or
// refused it, or didn't answer in time, it is retried later, or parked after the last
// attempt. If the channel was lost, it is retried at once, and so is a task that was
// never sent. A task that may be in a queue is marked as redelivered.
func (i item) released(r forward.Result) shard.Release {
	back := shard.Release{Lease: i.lease()}
	switch r.Outcome {
	case forward.Unsent:
	case forward.Unknown:
		back.Redelivered = true
		back.Reason = r.Reason
	default:
		attempt, settings := i.claimed.SinceStored, i.claim.settings
		back.Attempted = true
		back.Redelivered = r.Outcome == forward.Overdue
		back.Reason = r.Reason
		back.Park = attempt >= settings.MaxAttempts
		back.Delay = retryDelay(settings.Backoff.Min, settings.Backoff.Max, attempt)
		i.notConfirmed(r, back.Park)
		if !back.Park {
			i.claim.polling.retries.released(i, back, r.Outcome)
		}
	}
	return back
}

// notConfirmed counts and logs a task that the broker didn't accept.
func (i item) notConfirmed(r forward.Result, parked bool) {
	t, ctx, id := i.claim.polling, context.Background(), shard.ShortID(i.claimed.ID)
	switch r.Outcome {
	case forward.Returned:
		t.metrics.Returned.Inc()
	case forward.Overdue:
		t.metrics.Overdue.Inc()
	default:
		t.metrics.Nacked.Inc()
	}
	if parked {
		t.metrics.Parked.Inc()
		t.logs.parked.Log(ctx, "id", id, "attempts", i.claimed.Attempt, "reason", r.Reason)
	} else {
		t.logs.refused.Log(ctx, "id", id, "attempt", i.claimed.Attempt, "reason", r.Reason)
	}
}

// retryDelay returns when to retry a task that the broker didn't accept. It grows
// exponentially with the attempts so far. A jitter of a fifth keeps tasks that failed
// together from being retried together.
func retryDelay(least, most time.Duration, attempt int) time.Duration {
	d := retry.Exponential(least, most, attempt-1)
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}
