// Package verify tests an installation from outside, for `producer verify`. It schedules
// tasks, consumes them from a queue of its own, and reports lost, early, repeated and late
// ones.
package verify

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// MaxOutstanding limits the tasks that are scheduled and not delivered, because a Test
// remembers each of them.
const MaxOutstanding = 1_000_000

const (
	// linger is how long a Test still listens for repeats after the last delivery.
	linger = time.Second
	// cleanup limits the end: finding lost tasks, cancelling, deleting the queue.
	cleanup = time.Minute
)

// Config configures a Test.
type Config struct {
	// Client schedules the tasks. The caller closes it. Required.
	Client *producer.Client
	// Options and Prefix say where in Redis the settings, the fleet and the clock are read.
	// Required.
	Options *redis.UniversalOptions
	Prefix  string
	// RabbitMQ says where to consume. Required.
	RabbitMQ config.RabbitMQ
	// Topic of the tasks. Required.
	Topic string
	// Exchange is the topic's exchange. Defaults to the one in the topic's settings.
	Exchange string
	// Shared accepts an exchange that sends the tasks to other queues, too. Defaults to
	// false.
	Shared bool
	// Rate is the number of tasks to schedule per second. Required.
	Rate int
	// Duration is how long to schedule. Required.
	Duration time.Duration
	// Delay is the longest delay of a task. Defaults to 0.
	Delay time.Duration
	// Wait is how long to wait for tasks after the last due time. Defaults to 0.
	Wait time.Duration
	// MaxLate is the lateness above which a task is a mistake. Defaults to 0, for no limit.
	MaxLate time.Duration
	// Payload is the size of each payload in bytes. Defaults to 0.
	Payload int
}

// AdvisedError is the text of an error that says itself what to do.
type AdvisedError string

// Error returns the text.
func (e AdvisedError) Error() string { return string(e) }

// Test is one acceptance test of an installation.
type Test struct {
	cfg        Config
	store      *shard.Store
	closeStore func() error
	clock      *clock
	ledger     *ledger
	queue      *queue
	schedule   *schedule
}

// New makes a Test, which connects to the servers in Run.
func New(cfg Config) (*Test, error) {
	urls, secure, err := connect.RabbitMQ(cfg.RabbitMQ, nil)
	if err != nil {
		return nil, fmt.Errorf("read settings of RabbitMQ: %w", err)
	}
	store, closeStore, err := shard.Open(nil, cfg.Options, cfg.Prefix, 0)
	if err != nil {
		return nil, fmt.Errorf("open Redis: %w", err)
	}
	run := fmt.Sprintf("%d-%08x", time.Now().Unix(), rand.Uint32())
	t := &Test{
		cfg: cfg, store: store, closeStore: closeStore,
		clock: newClock(store), ledger: newLedger(cfg.Topic, "verify-"+run+"-"),
	}
	t.queue = &queue{
		name: "duefleet.verify." + run, shared: cfg.Shared, urls: urls, secure: secure,
		arrived: func(d amqp.Delivery) {
			now, within := t.clock.now(time.Now())
			t.ledger.arrive(d, now, within)
		},
	}
	t.schedule = &schedule{
		cfg: cfg, clock: t.clock, ledger: t.ledger, queue: t.queue.name, payload: bytes.Repeat([]byte("v"), cfg.Payload),
	}
	return t, nil
}

// Run tests the installation, until the end of ctx at the latest, and then removes its tasks
// and its queue. The report is nil if no task was scheduled because of the error. Otherwise
// the error says what is wrong with the installation. It is called once.
func (t *Test) Run(ctx context.Context) (r *Report, err error) {
	defer func() { err = errors.Join(err, t.closeStore()) }()
	if t.queue.exchange, err = findExchange(ctx, t.store, &t.cfg); err != nil {
		return nil, err
	}
	if err := t.clock.sample(ctx); err != nil {
		return nil, err
	}
	if err := t.queue.open(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	failure := t.deliver(ctx)
	r = t.report(ctx, time.Since(began), failure != nil)
	return r, r.verdict(failure, t.cfg.MaxLate)
}

// Progress returns how many tasks are scheduled, delivered, and outstanding. It may be called
// during Run.
func (t *Test) Progress() (scheduled, delivered, outstanding int64) {
	t.ledger.mu.Lock()
	defer t.ledger.mu.Unlock()
	return t.ledger.report.Scheduled, t.ledger.report.Delivered, int64(len(t.ledger.outstanding))
}

// deliver schedules the tasks and waits for them. It returns why it ended early: ctx, or an
// error of scheduling.
func (t *Test) deliver(ctx context.Context) error {
	// The goroutines end after the scheduling, also if ctx ends.
	background, halt := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { t.clock.run(background) })
	group.Go(func() { t.queue.run(background) })
	defer group.Wait()
	defer halt()
	if err := t.schedule.run(ctx); err != nil {
		return err
	}
	return t.await(ctx)
}

// await waits until all tasks are delivered, at most for Config.Wait after the last due time.
func (t *Test) await(ctx context.Context) error {
	now, _ := t.clock.now(time.Now())
	limit := time.Now().Add(max(t.schedule.last.Sub(now), 0) + t.cfg.Wait)
	for t.ledger.left() > 0 {
		if time.Now().After(limit) {
			return nil
		}
		if !retry.Sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	retry.Sleep(ctx, linger)
	return ctx.Err()
}

// report finds lost tasks, unless the run ended early. It removes the tasks and the queue, and
// returns the report.
func (t *Test) report(ctx context.Context, took time.Duration, early bool) *Report {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	r, late, latest := &t.ledger.report, t.ledger.late, t.ledger.latest
	known, unknown := t.ledger.missing()
	r.Interrupted, r.Uncertain = early, int64(unknown)
	if early {
		r.Outstanding = int64(len(known))
	} else {
		r.Lost = int64(len(known))
		t.find(ctx, r, known)
	}
	r.Rate = math.Round(float64(r.Scheduled) / max(t.schedule.took.Seconds(), 1e-6))
	r.Seconds = took.Round(time.Millisecond).Seconds()
	r.Outages, r.OutageSeconds = t.schedule.outages, t.schedule.out.Round(time.Millisecond).Seconds()
	r.Reconnects, r.Away = t.queue.lost, t.queue.away
	r.P50, r.P99 = millis(min(late.Quantile(0.5), latest)), millis(min(late.Quantile(0.99), latest))
	r.Max, r.Histogram, r.ClockError = millis(latest), buckets(late), millis(t.clock.worst)
	r.Cleanup = cmp.Or(t.cancel(ctx, r), t.queue.remove(ctx))
	return r
}

// cancel cancels the tasks of this run that are stored. It returns what the operator must
// do, "" for nothing.
func (t *Test) cancel(ctx context.Context, r *Report) (left string) {
	retry.Sleep(ctx, time.Until(t.schedule.uncertainUntil)) // then no lost call can store a task any more
	m, err := t.cfg.Client.CancelMatching(ctx, producer.Matching{Topic: t.cfg.Topic, Prefix: r.Prefix})
	r.Cancelled = m.Changed
	if err != nil && !errors.Is(err, task.ErrUnknownTopic) {
		return fmt.Sprintf("tasks of this run may remain (%s): producer cancel %s --id-prefix %s",
			cli.OneLine(err.Error()), t.cfg.Topic, r.Prefix)
	}
	return ""
}
