package scanner

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/poll"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/window"
)

// claim is one claim, and its batch on the way to RabbitMQ.
type claim struct {
	polling  *polling
	settings *config.Topic // when there was room for it
	request  shard.Claim
	room     atomic.Pointer[window.Room] // what is reserved for it

	shard        int
	asked, heard time.Time // its leases end at least a lease after asked. At heard, Redis's clock showed batch.Now
	batch        shard.Batch
	err          error
}

// Claim implements poll.Work. If the answer takes long, the claim gives back its room. Its tasks are
// forwarded all the same, even if that exceeds the window.
func (t *polling) Claim(ctx, tick context.Context, r poll.Request) poll.Answer {
	c, rest := t.newClaim(tick)
	if c == nil {
		return poll.Answer{Rest: rest}
	}
	late := time.AfterFunc(r.Patience, func() {
		c.reserve(0, 0)
		r.Late()
	})
	c.send(ctx, r.Shard, r.End)
	late.Stop()
	c.forward(ctx)
	return poll.Answer{Sent: true, Err: c.err, Asked: c.asked, Heard: c.heard, Now: c.batch.Now, Next: c.batch.Next,
		Polled: c.batch.Polled, Found: len(c.batch.Tasks)}
}

// newClaim waits for the broker, and for room in the window. It returns nil if ctx ends first. It
// also returns nil if the topic's rate allows no task before rest.
func (t *polling) newClaim(ctx context.Context) (c *claim, rest time.Time) {
	if err := t.publisher.WaitReady(ctx); err != nil {
		return nil, rest // the tick is over; the publisher itself reports what is wrong
	}
	s := t.inForce.Settings()
	r, err := t.window.Reserve(ctx, t.batch(s.Batch))
	if err != nil {
		return nil, rest // the tick is over
	}
	allowed, wait, err := t.allowed(ctx, s.Rate, r.Tasks)
	switch {
	case err != nil:
		t.Fails(ctx, "", "claim", err)
		wait = rateRetry
	case allowed == 0:
		now := time.Now()
		t.limited.Store(&now)
	default:
		r = t.window.Keep(r, allowed, r.Bytes)
		one := &claim{polling: t, settings: s, request: shard.Claim{Claimant: t.instance, Request: t.requests.next(),
			Limit: r.Tasks, Bytes: r.Records(), Lease: s.Lease, Grace: poll.Grace}}
		one.room.Store(&r)
		return one, rest
	}
	t.window.Keep(r, 0, 0)
	return nil, time.Now().Add(wait)
}

// A topic asks for at least an eighth of a batch. After a claim that found all it asked for, it
// asks for four times as much.
const (
	leastOfBatch = 8
	moreOfBatch  = 4
)

// batch returns how many tasks to ask for, at most as many as the settings allow. After a
// claim that found all it asked for, the next one asks for more. After any other claim,
// the next one asks for twice what that one found: unused reservations keep others from
// claiming.
func (t *polling) batch(most int) int {
	asks := int(t.asks.Load())
	if asks == 0 {
		return most
	}
	return min(most, max(asks, most/leastOfBatch))
}

// found notes how many tasks a claim found, and how many it asked for.
func (t *polling) found(tasks, asked int) {
	asks := max(1, 2*tasks)
	if tasks >= asked {
		asks = moreOfBatch * asked
	}
	t.asks.Store(int64(asks))
}

// send leases what is due in a shard, which is polled until end.
func (c *claim) send(ctx context.Context, at int, end time.Time) {
	c.shard, c.asked = at, time.Now()
	c.request.Stay = end.Sub(c.asked)
	c.batch, c.err = c.retryUntil(ctx)
	c.heard = time.Now()
}

// reserve changes what is reserved for the claim to tasks and bytes. From then on the
// claimed tasks hold that.
func (c *claim) reserve(tasks, bytes int) {
	c.polling.window.Keep(*c.room.Swap(&window.Room{}), tasks, bytes)
}

// forward passes on what the claim found, and gives back the room that the tasks don't need.
func (c *claim) forward(ctx context.Context) {
	t, n := c.polling, len(c.batch.Tasks)
	if c.err != nil {
		c.reserve(0, 0)
		if shard.Definite(c.err) {
			t.health.Fails(ctx, c.shard, "claim", c.err)
		}
		return
	}
	t.metrics.Claim.Observe(c.heard.Sub(c.asked).Seconds())
	if n > 0 {
		t.claimed.Store(&c.heard)
	}
	t.found(n, c.request.Limit)
	t.health.Works(ctx, c.shard, "claim")
	c.reserve(n+len(c.batch.Bad), window.Bytes(c.batch.Tasks))
	t.unused(ctx, c.settings.Rate, c.request.Limit-n)
	c.parkBad(ctx)
	c.publish(ctx)
}

// retryUntil sends one claim and repeats it while its answer is lost. The end of ctx doesn't
// interrupt it, because leased tasks must be forwarded or released. It gives up when the
// lease is over or the topic is stopped. It doesn't repeat a claim that was certainly not
// carried out, or that Redis refuses: that would only delay the other shards.
func (c *claim) retryUntil(ctx context.Context) (shard.Batch, error) {
	t, sure := c.polling, context.WithoutCancel(ctx)
	from := t.store.Shard(c.shard)
	var pause retry.Backoff
	lost := false // a claim may have been carried out
	for {
		batch, err := from.Claim(sure, c.request)
		lost = lost || shard.Unknown(err)
		if !lost || err == nil || shard.Definite(err) || time.Since(c.asked) > c.request.Lease || t.stopped.Load() {
			return batch, err
		}
		t.outages.begin(ctx, t.topic, from.Node(sure), "claim", err)
		pause.Wait(sure)
	}
}

// parkBad parks tasks with broken records. It also logs and counts the tasks that the
// claim skipped.
func (c *claim) parkBad(ctx context.Context) {
	t := c.polling
	if c.batch.Skipped > 0 {
		t.logs.skipped.add(ctx, c.shard, c.batch.Skipped)
	}
	t.window.Free(0, len(c.batch.Bad), 0)
	for _, bad := range c.batch.Bad {
		t.logs.broken.Log(ctx, "shard", c.shard, "id", shard.ShortID(bad.ID), "error", bad.Err)
		t.settler.Release(c.shard, shard.Release{Lease: shard.Lease{ID: bad.ID, Token: bad.Token}, Park: true,
			Reason: bad.Err.Error()})
	}
}

// publish hands the batch to the publisher. Confirms must come while a quarter of the
// lease is left for settling. If the claim took more than half of the lease, or the topic
// is stopped, publish releases the tasks at once.
func (c *claim) publish(ctx context.Context) {
	if len(c.batch.Tasks) == 0 {
		return
	}
	t, lease := c.polling, c.settings.Lease
	t.retries.claimed(c.shard, c.batch.Tasks)
	messages := make([]forward.Message, len(c.batch.Tasks))
	batch, items := make([]*forward.Message, len(messages)), make([]item, len(messages))
	deadline := c.asked.Add(lease - lease/4)
	for i := range messages {
		claimed := &c.batch.Tasks[i]
		items[i] = item{c, claimed, window.Bytes(c.batch.Tasks[i : i+1])}
		messages[i] = forward.Message{Task: shard.RunOf(claimed.Task), Owner: &items[i], Deadline: deadline}
		batch[i] = &messages[i]
	}
	defer t.window.Free(0, len(batch), 0)
	if t.stopped.Load() || time.Since(c.asked) > lease/2 {
		unsent := make([]forward.Result, len(batch))
		for i, m := range batch {
			unsent[i] = forward.Result{Message: m, Outcome: forward.Unsent}
		}
		t.resolved(unsent)
		return
	}
	if err := t.publisher.Publish(context.WithoutCancel(ctx), batch); err != nil {
		t.log.DebugContext(ctx, "batch not published", "shard", c.shard, "tasks", len(batch), "error", err)
	}
}
