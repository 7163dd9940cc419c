package scanner

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
)

// topic is what this scanner does for one topic: its workers, its publisher, and
// what they share.
type topic struct {
	name       string
	instance   string
	store      *shard.Topic
	far        *shard.Topic // the same, for movers
	publisher  *forward.Publisher
	window     *window
	settler    *settler
	waiters    *waiters
	retries    *retries
	minute     *lastMinute
	view       *view
	reconciler *reconciler
	health     *topicHealth
	notices    notices
	sources    *sources
	log        *slog.Logger
	metrics    *telemetry.TopicMetrics
	live       func() int     // scanners of the fleet that live
	requests   *atomic.Uint64 // the process's
	moving     oneStep        // the process's
	exports    exportLease

	document atomic.Pointer[config.Document] // in force
	routed   atomic.Pointer[config.Document] // whose route the publisher was given last
	desired  atomic.Uint64                   // counts the documents that brought another shard count
	changed  retry.Broadcast                 // of document and placement
	resumed  atomic.Pointer[config.Document] // whose pause has ended by itself
	stopped  atomic.Bool                     // no more claims

	differs atomic.Pointer[map[string]string] // settings in force that aren't the defaults
	limited atomic.Pointer[time.Time]         // when the rate held tasks back last; nil: never
}

// newTopic puts a topic together and starts nothing.
func (s *Scanner) newTopic(doc config.Document) *topic {
	log, metrics := s.log.With("topic", doc.Name), s.metrics.Topic(doc.Name)
	t := &topic{
		name: doc.Name, instance: s.cfg.Instance, store: s.store.Topic(doc.Name), far: s.cfg.Moving.Topic(doc.Name),
		window: s.budget.window(doc.Topic.Window), waiters: newWaiters(), retries: newRetries(), minute: newLastMinute(), notices: newNotices(log), log: log, metrics: metrics,
		health: &topicHealth{log: log, metrics: metrics, errors: s.metrics.Error},
		live:   func() int { return s.heartbeat.State().Live }, requests: &s.requests, moving: s.moving,
	}
	t.view = &view{log: log, metrics: metrics, changed: &t.changed, clean: map[int]bool{}, shown: map[int]shard.Placement{}}
	t.sources = s.sources
	t.reconciler = &reconciler{topic: t, source: s.sources, shared: s.cfg.Register != nil, placed: make(chan struct{}, 1)}
	t.settler = newSettler(t.store, t.window, t.settlerTried)
	t.publisher = s.connection.NewPublisher(doc.Name, routeOf(doc.Topic), t.resolved)
	t.apply(doc)
	return t
}

func (t *topic) settings() *config.Topic { return &t.document.Load().Topic }

// apply puts a document in force; it has passed every check.
func (t *topic) apply(doc config.Document) {
	differs := differing(doc)
	t.differs.Store(&differs)
	before := t.document.Swap(&doc)
	t.window.resize(doc.Topic.Window)
	t.metrics.SetPaused(t.paused())
	if before == nil || before.Topic.Shards != doc.Topic.Shards {
		t.desired.Add(1)
	}
	t.changed.Fire()
}

// await waits until a condition holds that depends on the document and the placement,
// or until ctx ends.
func (t *topic) await(ctx context.Context, holds func() bool) {
	for ctx.Err() == nil {
		changed := t.changed.Next()
		if holds() {
			return
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// run serves the topic until ctx ends; then it stops claiming and waits for its
// workers. What is in flight goes on until shutDown.
func (t *topic) run(ctx context.Context) {
	pool := balance.Pool{Wanted: t.workers, Changed: t.changed.Next, Work: t.work}
	var all sync.WaitGroup
	for _, part := range []func(context.Context){t.announce, t.endPauses, t.reconciler.run, t.listen, t.route, t.keep, pool.Run} {
		all.Go(func() { part(ctx) })
	}
	all.Wait()
}

// announce logs that the topic is served, once Redis has told its placement.
func (t *topic) announce(ctx context.Context) {
	t.await(ctx, func() bool {
		p, removed := t.view.known()
		return p.Epoch > 0 && !removed
	})
	if ctx.Err() == nil {
		t.log.InfoContext(ctx, "topic served", "shards", t.settings().Shards, "exchange", t.settings().Exchange)
	}
}

// scale returns how many workers this scanner runs for the topic, and how many tickets
// each of them draws a tick; none before there is a placement.
func (t *topic) scale() (workers, tickets int) {
	p, _ := t.view.known()
	if p.Epoch == 0 {
		return 0, 0
	}
	return balance.Scale(t.settings().Workers, p.Scanned(), t.live())
}

func (t *topic) workers() int {
	workers, _ := t.scale()
	return workers
}

// work is one worker of the pool.
func (t *topic) work(ctx context.Context, number int) {
	t.metrics.AddWorkers(1)
	defer t.metrics.AddWorkers(-1)
	t.newWorker(number).run(ctx)
}

// request is a number that this process gives to no other claim or export: a worker that
// is started again has the name of the one before, whose batches may be in flight.
func (t *topic) request() string { return strconv.FormatUint(t.requests.Add(1), 10) }

// listen notifies waiters of what the topic's wake channels tell, for as many shards as
// are attended; and has a placement that was put in force read at once, since new tasks
// lie in its shards already.
func (t *topic) listen(ctx context.Context) {
	for ctx.Err() == nil {
		n := t.view.scanned()
		listening, cancel := context.WithCancel(ctx)
		go func() {
			defer cancel()
			t.await(listening, func() bool { return t.view.scanned() != n })
		}()
		t.store.Wakes(listening, n, t.waiters.notify, t.reconciler.wake, t.health.listens)
		cancel()
	}
}

// route gives the publisher the route of the settings in force. It may have to
// wait for the broker, which nothing else of the topic shall.
func (t *topic) route(ctx context.Context) {
	for ctx.Err() == nil {
		doc := t.document.Load()
		route := routeOf(doc.Topic)
		t.publisher.SetRoute(route)
		t.routed.Store(doc)
		t.await(ctx, func() bool { return !reflect.DeepEqual(routeOf(*t.settings()), route) })
	}
}

// applying reports whether RabbitMQ has still to judge the settings in force.
func (t *topic) applying() bool {
	routed := t.routed.Load()
	if routed == nil || !reflect.DeepEqual(routeOf(routed.Topic), routeOf(*t.settings())) {
		return true
	}
	_, judged := t.publisher.Blocked()
	return !judged
}

// blocked returns the kind of what keeps the topic from being delivered and waiting
// doesn't mend, as telemetry's reasons have it; "" if nothing does.
func (t *topic) blocked() string {
	if block, _ := t.publisher.Blocked(); block.Kind != "" {
		return block.Kind
	}
	if t.health.refusals.denied() != "" {
		return "redis"
	}
	return ""
}

func routeOf(s config.Topic) forward.Route {
	r := forward.Route{
		Exchange: s.Exchange, RoutingKey: s.RoutingKey, Lean: s.Headers == config.LeanHeaders, Window: s.Window, ConfirmTimeout: s.Lease / 2,
	}
	if s.Declare != nil {
		d := s.Declare
		r.Declare = &forward.Declare{Type: d.Type, Queue: d.Queue, QueueType: d.QueueType, DeadLetter: d.DeadLetter}
	}
	return r
}

// served is a topic that is being served.
type served struct {
	topic  *topic
	orphan atomic.Bool        // its document vanished
	stop   context.CancelFunc // ends the workers
	done   chan struct{}      // closed when they have returned
	// What outlasts the workers, until the end: it publishes and settles.
	background errgroup.Group
	end        context.CancelFunc
}

// serve starts serving a topic: its workers until working ends, and what outlasts them
// until serving does. All of it is in group.
func (s *Scanner) serve(working, serving context.Context, group *errgroup.Group, doc config.Document) *served {
	v := &served{topic: s.newTopic(doc), done: make(chan struct{})}
	working, v.stop = context.WithCancel(working)
	serving, v.end = context.WithCancel(serving)
	v.background.Go(func() error { return v.topic.publisher.Run(serving) })
	v.background.Go(func() error { v.topic.settler.run(serving); return nil })
	group.Go(v.background.Wait)
	group.Go(func() error {
		defer close(v.done)
		v.topic.run(working)
		return nil
	})
	return v
}

// shutDown ends the workers and lets what is in flight end. What has not by the end of
// ctx is given back, for which it takes up to rest more.
func (v *served) shutDown(ctx context.Context, rest time.Duration) error {
	t := v.topic
	t.stopped.Store(true)
	v.stop()
	select {
	case <-v.done:
	case <-ctx.Done():
	}
	if err := t.publisher.Drain(ctx); err != nil {
		t.log.WarnContext(ctx, "messages not confirmed in time, given back", "error", err)
	}
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), end.Add(rest))
		defer cancel()
	}
	if err := t.settler.drain(ctx); err != nil {
		return fmt.Errorf("settle topic %s: %w: its tasks in flight are delivered again when their leases end", t.name, err)
	}
	return nil
}
