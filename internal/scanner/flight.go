package scanner

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// flight is one claimed batch on its way to RabbitMQ.
type flight struct {
	*topic
	shard    int
	asked    time.Time // before the claim: its leases end no sooner than a lease after it
	heard    time.Time // when batch.Now, Redis's clock, was heard
	batch    shard.Batch
	settings *config.Topic
}

// forward hands a claimed batch to the publisher. A confirm must be there with a
// quarter of the lease to spare, for settling; what was claimed too slowly for
// that, or while the scanner stops, is given back at once.
func (w *worker) forward(ctx context.Context, f flight) {
	if len(f.batch.Tasks) == 0 {
		return
	}
	w.window.carry(f.bytes())
	lease := f.settings.Lease
	if w.closing() || time.Since(f.asked) > lease/2 {
		w.giveBack(f)
		return
	}
	messages := make([]forward.Message, len(f.batch.Tasks))
	batch := make([]*forward.Message, len(messages))
	deadline := f.asked.Add(lease - lease/4)
	for i := range messages {
		messages[i] = forward.Message{Task: f.batch.Tasks[i].Task, Ref: lot{&f, i}, Deadline: deadline}
		batch[i] = &messages[i]
	}
	if err := w.publisher.Publish(context.WithoutCancel(ctx), batch); err != nil {
		w.log.DebugContext(ctx, "batch not published", "shard", f.shard, "tasks", len(batch), "error", err)
	}
}

// bytes of payloads.
func (f flight) bytes() (n int) {
	for i := range f.batch.Tasks {
		n += len(f.batch.Tasks[i].Payload)
	}
	return n
}

// lot is one task of a flight.
type lot struct {
	*flight
	index int
}

func (l lot) claimed() *shard.Claimed { return &l.batch.Tasks[l.index] }

func (l lot) lease() shard.Lease {
	c := l.claimed()
	return shard.Lease{ID: c.ID, Token: c.Token}
}

// lateness is how long after its due time, by Redis's clock, a task is confirmed
// now.
func (l lot) lateness(now time.Time) time.Duration {
	return l.batch.Now.Sub(l.claimed().Due) + now.Sub(l.heard)
}

func (w *worker) giveBack(f flight) {
	w.window.carry(-f.bytes())
	for i := range f.batch.Tasks {
		w.settler.release(f.shard, shard.Release{Lease: lot{&f, i}.lease()})
	}
	w.metrics.Released(len(f.batch.Tasks))
}

// resolved sorts what became of published messages: confirmed ones are settled,
// all others given back.
func (t *topic) resolved(results []forward.Result) {
	now, bytes := time.Now(), 0
	defer func() { t.window.carry(-bytes) }()
	for _, r := range results {
		l, ok := r.Message.Ref.(lot)
		if !ok {
			continue
		}
		bytes += len(l.claimed().Payload)
		if r.Outcome == forward.Confirmed {
			t.count(l, r, now)
			t.settler.settle(l.shard, l.lease())
			continue
		}
		t.settler.release(l.shard, t.release(l, r))
	}
}

func (t *topic) count(l lot, r forward.Result, now time.Time) {
	t.metrics.Forwarded(l.lateness(now))
	t.metrics.Confirmed(r.Elapsed)
	if l.claimed().Redelivered {
		t.metrics.Redelivered()
	}
}

func (t *topic) countFailure(o forward.Outcome, parked bool) {
	switch o {
	case forward.Returned:
		t.metrics.Returned()
	case forward.Overdue:
		t.metrics.Overdue()
	default:
		t.metrics.Nacked()
	}
	if parked {
		t.metrics.Parked(1)
	}
}

// release says how a task that was not confirmed is given back: one that the
// broker returned, refused or did not answer for in time is tried again later, or
// parked after the last attempt; one whose fate is unknown is tried again at once, as
// is one that was never sent. What may be in a queue is marked as redelivered.
func (t *topic) release(l lot, r forward.Result) shard.Release {
	back := shard.Release{Lease: l.lease()}
	switch r.Outcome {
	case forward.Unsent:
	case forward.Unknown:
		back.Redelivered = true
		back.Reason = r.Reason
	default:
		attempt := l.claimed().Attempt
		back.Attempted = true
		back.Redelivered = r.Outcome == forward.Overdue
		back.Reason = r.Reason
		back.Park = attempt >= l.settings.MaxAttempts
		back.Delay = retryDelay(l.settings.Backoff.Min, l.settings.Backoff.Max, attempt)
		t.countFailure(r.Outcome, back.Park)
		t.sayUndelivered(l.claimed().Task, r.Reason, back.Park)
	}
	t.metrics.Released(1)
	return back
}

// sayUndelivered logs what the broker does not take.
func (t *topic) sayUndelivered(tk task.Task, reason string, parked bool) {
	ctx := context.Background()
	if parked {
		t.notices.parked.Say(ctx, "id", shard.ShortID(tk.ID), "attempts", tk.Attempt, "reason", reason)
	} else {
		t.notices.refused.Say(ctx, "id", shard.ShortID(tk.ID), "attempt", tk.Attempt, "reason", reason)
	}
}
