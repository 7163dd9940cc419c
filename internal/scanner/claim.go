package scanner

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/poll"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/window"
)

// claim is one claim, and its answer.
type claim struct {
	polling  *polling
	settings *config.Topic
	shard    int
	claim    shard.Claim
	room     atomic.Pointer[window.Room] // what is reserved for it

	asked, heard time.Time
	batch        shard.Batch
	err          error
}

// Reserve implements poll.Work. It waits for the broker, and for room in the window.
func (t *polling) Reserve(ctx context.Context) (c poll.Claim, rest time.Time) {
	if err := t.publisher.WaitReady(ctx); err != nil {
		return nil, rest // the tick is over; the publisher itself reports what is wrong
	}
	s := t.inForce.settings()
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
		one := &claim{polling: t, settings: s, claim: shard.Claim{Claimant: t.instance, Request: t.requests.next(),
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

// Send implements poll.Claim.
func (c *claim) Send(ctx context.Context, at int, stay time.Duration) (poll.Answer, error) {
	t := c.polling
	c.shard, c.asked, c.claim.Stay = at, time.Now(), stay
	c.batch, c.err = t.retryUntil(ctx, at, c.claim, c.asked)
	c.heard = time.Now()
	if c.err != nil {
		if shard.Definite(c.err) {
			t.health.Fails(ctx, at, "claim", c.err)
		}
		return poll.Answer{}, c.err
	}
	return poll.Answer{Asked: c.asked, Heard: c.heard, Now: c.batch.Now, Next: c.batch.Next, Polled: c.batch.Polled,
		Found: len(c.batch.Tasks)}, nil
}

// GiveBack implements poll.Claim. What the claim finds is forwarded, even if that exceeds the
// window.
func (c *claim) GiveBack() { c.reserve(0, 0) }

// reserve changes what is reserved for the claim to tasks and bytes. From then on the
// claimed tasks hold that.
func (c *claim) reserve(tasks, bytes int) {
	c.polling.window.Keep(*c.room.Swap(&window.Room{}), tasks, bytes)
}

// Forward implements poll.Claim. It also gives back the room that the tasks don't need.
func (c *claim) Forward(ctx context.Context) {
	t, n := c.polling, len(c.batch.Tasks)
	if c.err != nil {
		c.reserve(0, 0)
		return
	}
	t.metrics.Claim.Observe(c.heard.Sub(c.asked).Seconds())
	if n > 0 {
		t.claimed.Store(&c.heard)
	}
	t.found(n, c.claim.Limit)
	t.health.Works(ctx, c.shard, "claim")
	c.reserve(n+len(c.batch.Bad), window.Bytes(c.batch.Tasks))
	t.unused(ctx, c.settings.Rate, c.claim.Limit-n)
	t.parkBad(ctx, c.shard, c.batch)
	d := delivery{topic: t.topic, shard: c.shard, asked: c.asked, heard: c.heard, batch: c.batch, settings: c.settings}
	d.publish(ctx)
}

// retryUntil sends one claim and repeats it while its answer is lost. The end of ctx doesn't
// interrupt it, because leased tasks must be forwarded or released. It gives up when the
// lease is over or the topic is stopped. It doesn't repeat a claim that was certainly not
// carried out, or that Redis refuses: that would only delay the other shards.
func (t *polling) retryUntil(ctx context.Context, at int, c shard.Claim, asked time.Time) (shard.Batch, error) {
	sure := context.WithoutCancel(ctx)
	var pause retry.Backoff
	lost := false // a claim may have been carried out
	for {
		batch, err := t.store.Shard(at).Claim(sure, c)
		lost = lost || shard.Unknown(err)
		if !lost || err == nil || shard.Definite(err) || time.Since(asked) > c.Lease || t.stopped.Load() {
			return batch, err
		}
		t.outages.begin(ctx, t.topic, t.store.Shard(at).Node(sure), "claim", err)
		pause.Wait(sure)
	}
}

// rateBurst is how much of a topic's rate may be used at once. rateRest is how long a
// topic waits for more of it at least, so that it doesn't claim tasks one by one.
const (
	rateBurst = 20 * time.Millisecond
	rateRest  = 5 * time.Millisecond
	// ratePatience bounds a call for the rate. Every claim of the topic waits for it.
	ratePatience = 2 * time.Second
	// rateRetry is the pause after a call for the rate that failed.
	rateRetry = 250 * time.Millisecond
)

// allowed returns how many of want tasks the topic's rate allows now. If there are none,
// it returns how long to wait. Without a rate it allows all of them.
func (t *polling) allowed(ctx context.Context, rate, want int) (int, time.Duration, error) {
	if rate == 0 {
		return want, 0, nil
	}
	burst := max(rateBurst, 2*time.Second/time.Duration(rate))
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), ratePatience)
	defer cancel()
	n, wait, err := t.store.Store().Registry().Grant(brief, t.store.Name(), rate, want, burst)
	if err == nil {
		t.Works(ctx, "")
	}
	return n, max(wait, rateRest), err
}

// unused gives back the part of the rate that a claim didn't need.
func (t *polling) unused(ctx context.Context, rate, n int) {
	if rate == 0 || n <= 0 {
		return
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), ratePatience)
	defer cancel()
	if _, _, err := t.store.Store().Registry().Grant(brief, t.store.Name(), rate, -n, rateBurst); err != nil {
		t.log.DebugContext(ctx, "unused rate not given back", "tasks", n, "error", err)
	}
}

// parkBad parks tasks with broken records. It also logs and counts the tasks that the
// claim skipped.
func (t *polling) parkBad(ctx context.Context, at int, batch shard.Batch) {
	if batch.Skipped > 0 {
		t.logs.skipped.add(ctx, at, batch.Skipped)
	}
	t.window.Free(0, len(batch.Bad), 0)
	for _, bad := range batch.Bad {
		t.logs.broken.Log(ctx, "shard", at, "id", shard.ShortID(bad.ID), "error", bad.Err)
		t.settler.Release(at, shard.Release{Lease: shard.Lease{ID: bad.ID, Token: bad.Token}, Park: true,
			Reason: bad.Err.Error()})
	}
}
