package scanner

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

// delivery is one claimed batch on its way to RabbitMQ.
type delivery struct {
	topic    *topic
	shard    int
	asked    time.Time // before the claim: its leases end no sooner than a lease after it
	heard    time.Time // when batch.Now, Redis's clock, was heard
	batch    shard.Batch
	settings *config.Topic // at the claim
}

// item is one task of a delivery.
type item struct {
	delivery *delivery
	claimed  *shard.Claimed
	bytes    int // of the budget
}

// publish hands the batch to the publisher. A confirm must be there with a quarter of
// the lease to spare, for settling; what was claimed too slowly for that, or while the
// scanner stops, is given back at once.
func (d *delivery) publish(ctx context.Context) {
	if len(d.batch.Tasks) == 0 {
		return
	}
	t, lease := d.topic, d.settings.Lease
	t.retries.claimed(d.shard, d.batch.Tasks)
	messages := make([]forward.Message, len(d.batch.Tasks))
	batch := make([]*forward.Message, len(messages))
	deadline := d.asked.Add(lease - lease/4)
	for i := range messages {
		claimed := &d.batch.Tasks[i]
		messages[i] = forward.Message{Task: claimed.Task, Ref: item{d, claimed, bytesOf(d.batch.Tasks[i : i+1])}, Deadline: deadline}
		batch[i] = &messages[i]
	}
	defer t.window.written(len(batch))
	if t.stopped.Load() || time.Since(d.asked) > lease/2 {
		unsent := make([]forward.Result, len(batch))
		for i, m := range batch {
			unsent[i] = forward.Result{Message: m, Outcome: forward.Unsent}
		}
		t.resolved(unsent)
		return
	}
	if err := t.publisher.Publish(context.WithoutCancel(ctx), batch); err != nil {
		t.log.DebugContext(ctx, "batch not published", "shard", d.shard, "tasks", len(batch), "error", err)
	}
}

func (i item) lease() shard.Lease { return shard.Lease{ID: i.claimed.ID, Token: i.claimed.Token} }

// resolved takes the outcomes of messages: a confirmed task is settled, every other one is
// released. The publisher calls it, and publish for what it gives back.
func (t *topic) resolved(results []forward.Result) {
	now, bytes := time.Now(), 0
	for _, r := range results {
		i, ok := r.Message.Ref.(item)
		if !ok {
			continue
		}
		bytes += i.bytes
		t.retries.resolved(i)
		i.forget(r)
		if r.Outcome == forward.Confirmed {
			confirmed := i.delivery.batch.Now.Add(now.Sub(i.delivery.heard)) // by Redis's clock
			late := confirmed.Sub(i.claimed.Due)
			t.metrics.Forwarded(late)
			t.minute.forwarded(now, late)
			t.metrics.Confirmed(r.Elapsed)
			if i.claimed.Redelivered {
				t.metrics.Redelivered()
			}
			t.settler.settle(i.delivery.shard, i.lease())
			continue
		}
		t.metrics.Released(1)
		t.settler.release(i.delivery.shard, i.released(r))
	}
	t.window.resolved(bytes)
}

// forget lets go of the payload, which the rest of its batch would keep in memory. Of a
// message whose fate isn't known the publisher may still be writing it.
func (i item) forget(r forward.Result) {
	switch r.Outcome {
	case forward.Confirmed, forward.Returned, forward.Refused:
		i.claimed.Payload, r.Message.Task.Payload = nil, nil
	default:
	}
}

// released returns how a task is given back that was not confirmed. One that the broker
// returned, refused or did not answer for in time is tried again later, or parked after
// the last attempt. One that may have reached the broker before the channel was lost is
// tried again at once, as is one that was never sent. What may be in a queue is marked
// as redelivered.
func (i item) released(r forward.Result) shard.Release {
	back := shard.Release{Lease: i.lease()}
	switch r.Outcome {
	case forward.Unsent:
	case forward.Unknown:
		back.Redelivered = true
		back.Reason = r.Reason
	default:
		attempt, settings := i.claimed.Attempt, i.delivery.settings
		back.Attempted = true
		back.Redelivered = r.Outcome == forward.Overdue
		back.Reason = r.Reason
		back.Park = attempt >= settings.MaxAttempts
		back.Delay = retryDelay(settings.Backoff.Min, settings.Backoff.Max, attempt)
		i.notConfirmed(r, back.Park)
		if !back.Park {
			i.delivery.topic.retries.released(i, back, r.Outcome)
		}
	}
	return back
}

// notConfirmed counts and logs a task that the broker did not take.
func (i item) notConfirmed(r forward.Result, parked bool) {
	t, ctx, id := i.delivery.topic, context.Background(), shard.ShortID(i.claimed.ID)
	switch r.Outcome {
	case forward.Returned:
		t.metrics.Returned()
	case forward.Overdue:
		t.metrics.Overdue()
	default:
		t.metrics.Nacked()
	}
	if parked {
		t.metrics.Parked(1)
		t.notices.parked.Say(ctx, "id", id, "attempts", i.claimed.Attempt, "reason", r.Reason)
	} else {
		t.notices.refused.Say(ctx, "id", id, "attempt", i.claimed.Attempt, "reason", r.Reason)
	}
}

// retryDelay is when a task that the broker returned or refused is tried again:
// exponential by its attempts so far, with jitter of a fifth, so that what failed
// together doesn't come back together.
func retryDelay(least, most time.Duration, attempt int) time.Duration {
	d := retry.Exponential(least, most, attempt-1)
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}

// settlerTried notes the outcome of each of the settler's tries to tell Redis what became
// of tasks.
func (t *topic) settlerTried(operation string, err error) {
	if t.health.refusals.noteDenied(operation, err); err == nil {
		return
	}
	t.health.errors(operation)
	t.notices.unsettled.Say(context.Background(), "operation", operation, "error", redisText(err))
}

// settler removes confirmed tasks from Redis and gives the others back, in batches, which
// gather for settleInterval or until they take a share of the window. What Redis can't be told of now is
// tried again until it is heard. That holds up the window, and so the claims, and so
// bounds the memory.
type settler struct {
	store  *shard.Topic
	window *window
	tried  func(operation string, err error) // is called with the outcome of each try

	mu      sync.Mutex
	pending map[int]*settlement // by shard
	tasks   int                 // that came to be pending since the last round began
	kicked  chan struct{}
	hurried chan struct{} // what is pending is not to gather any longer
	began   time.Time     // the last round
	under   int           // shards' settlements under way
	idle    chan struct{}
}

// settlement is what is to be done in one shard.
type settlement struct {
	settle  []shard.Lease
	release []shard.Release
	retry   retry.Backoff
	rest    time.Time // not before it: Redis could not be told of the shard's last ones
}

func newSettler(t *shard.Topic, w *window, tried func(string, error)) *settler {
	return &settler{
		store: t, window: w, tried: tried,
		pending: map[int]*settlement{}, kicked: make(chan struct{}, 1), hurried: make(chan struct{}, 1), idle: make(chan struct{}),
	}
}

// settle removes a task of a shard, soon.
func (s *settler) settle(at int, l shard.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of(at)
	p.settle = append(p.settle, l)
	s.add()
}

// release gives a task of a shard back, soon.
func (s *settler) release(at int, r shard.Release) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of(at)
	p.release = append(p.release, r)
	s.add()
}

// add counts a task that came to be pending; s.mu is held.
func (s *settler) add() {
	s.tasks++
	kick(s.kicked)
	if s.tasks >= s.window.share() {
		kick(s.hurried)
	}
}

// of returns what is pending for a shard; s.mu is held.
func (s *settler) of(at int) *settlement {
	if s.pending[at] == nil {
		s.pending[at] = &settlement{}
	}
	return s.pending[at]
}

// settlers is how many shards of a topic are settled at the same time.
const settlers = 4

// settleInterval is the time between two rounds that have little to do. A delivered task
// is in nobody's way meanwhile; if the scanner is killed, it is delivered again.
const settleInterval = 20 * time.Millisecond

// run works until ctx ends.
func (s *settler) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kicked:
			s.gather(ctx)
			s.round(ctx)
		}
	}
}

// gather waits until it is time for the next round.
func (s *settler) gather(ctx context.Context) {
	s.mu.Lock()
	pause := time.Until(s.began.Add(settleInterval))
	s.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.hurried:
	case <-timer.C:
	}
}

// round carries out what is pending and does not rest, and tells drain when nothing is
// left.
func (s *settler) round(ctx context.Context) {
	var work errgroup.Group
	work.SetLimit(settlers)
	for at, p := range s.take() {
		work.Go(func() error { s.carryOut(ctx, at, p); return nil })
	}
	_ = work.Wait() // what failed is pending again
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under = 0
	if len(s.pending) == 0 {
		close(s.idle)
		s.idle = make(chan struct{})
	}
}

// take returns the settlements that don't rest; they are pending no more.
func (s *settler) take() map[int]*settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	work, now := map[int]*settlement{}, time.Now()
	s.tasks, s.began = 0, now
	for at, p := range s.pending {
		if !now.Before(p.rest) {
			work[at] = p
			delete(s.pending, at)
		}
	}
	s.under = len(work)
	return work
}

func (s *settler) carryOut(ctx context.Context, at int, p *settlement) {
	if len(p.settle) > 0 {
		if _, err := s.store.Shard(at).Settle(ctx, p.settle); err != nil {
			s.again(at, p, "settle", err)
			return
		}
		s.tried("settle", nil)
		s.window.settled(len(p.settle))
		p.settle = nil
	}
	if len(p.release) > 0 {
		if _, err := s.store.Shard(at).Release(ctx, p.release); err != nil {
			s.again(at, p, "release", err)
			return
		}
		s.tried("release", nil)
		s.window.settled(len(p.release))
	}
}

// again makes pending what Redis was not told of, to rest for a while: other shards are
// settled meanwhile. A part that it was told of is told twice then, which changes
// nothing.
func (s *settler) again(at int, p *settlement, operation string, err error) {
	s.tried(operation, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	newer := s.of(at)
	newer.settle = append(newer.settle, p.settle...)
	newer.release = append(newer.release, p.release...)
	pause := p.retry.Next()
	newer.retry, newer.rest = p.retry, time.Now().Add(pause)
	time.AfterFunc(pause, func() { kick(s.kicked) }) // at the end of the rest, or behind it
}

// drain waits until nothing is left to do, or ctx ends.
func (s *settler) drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		left, idle := len(s.pending)+s.under, s.idle
		s.mu.Unlock()
		kick(s.hurried)
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-idle:
		}
	}
}
