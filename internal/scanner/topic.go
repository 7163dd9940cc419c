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
	"github.com/duefleet/duefleet/internal/intake"
	"github.com/duefleet/duefleet/internal/reshard"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
)

// topic is this scanner's work for one topic: its workers, its publisher, and what they
// share.
type topic struct {
	name      string
	instance  string
	store     *shard.Topic
	publisher *forward.Publisher
	window    *window
	settler   *settler
	waiters   *waiters
	retries   *retries
	minute    *lastMinute
	resharder *reshard.Resharder
	health    *topicHealth
	logs      limitedLogs
	sources   *sources
	log       *slog.Logger
	metrics   *telemetry.TopicMetrics
	live      func() int     // how many scanners of the fleet live
	requests  *atomic.Uint64 // shared by all topics
	placed    retry.Signal   // a placement was put in force

	tasks      *router.Router // for the intake, as the next three
	maxPayload int
	inbound    *inbound
	outbound   *forward.Connection
	intake     atomic.Pointer[intake.Intake] // nil while it is off

	document atomic.Pointer[config.Document] // in force.
	routed   atomic.Pointer[config.Document] // the one whose route the publisher was last given.
	desired  atomic.Uint64                   // counts the documents with a new shard count.
	changed  retry.Broadcast                 // fires at a new document or placement.
	resumed  atomic.Pointer[config.Document] // the one whose pause has ended by itself.
	stopped  atomic.Bool                     // no more claims.

	differs atomic.Pointer[map[string]string] // settings in force that aren't the defaults
	limited atomic.Pointer[time.Time]         // when the rate last held tasks back; nil: never
}

// newTopic puts a topic together and starts nothing.
func (s *Scanner) newTopic(doc config.Document) *topic {
	log, metrics := s.log.With("topic", doc.Name), s.metrics.Topic(doc.Name)
	t := &topic{
		name: doc.Name, instance: s.cfg.Instance, store: s.store.Topic(doc.Name), sources: s.sources,
		window: s.budget.window(doc.Topic.Window), waiters: newWaiters(), retries: newRetries(), minute: newLastMinute(),
		logs: newLimitedLogs(log), log: log, metrics: metrics,
		health: &topicHealth{log: log, metrics: metrics, errors: s.metrics.Error},
		live:   func() int { return s.heartbeat.State().Live }, requests: &s.requests, placed: retry.NewSignal(),
		tasks: s.routers.Topic(doc.Name), maxPayload: s.cfg.Settings.MaxPayload, inbound: s.inbound, outbound: s.connection,
	}
	t.resharder = reshard.New(reshard.Config{
		Topic: t.store, Moving: s.cfg.Moving.Topic(doc.Name), InForce: t.inForce, Desired: t.readShards,
		Shared: s.cfg.Register != nil, Live: t.live, Workers: t.workers, Request: t.request, Changed: &t.changed,
		Placed: t.placed, Step: s.moving, Report: t.health, Metrics: metrics, Log: log, Advice: adviceOnRedis,
	})
	t.settler = newSettler(t.store, t.window, t.settlerTried)
	t.publisher = s.connection.NewPublisher(doc.Name, routeOf(doc.Topic), t.resolved)
	t.apply(doc)
	return t
}

func (t *topic) settings() *config.Topic { return &t.document.Load().Topic }

// apply puts a document in force, which has passed every check.
func (t *topic) apply(doc config.Document) {
	differs := differing(doc)
	t.differs.Store(&differs)
	before := t.document.Swap(&doc)
	t.window.resize(doc.Topic.Window)
	t.metrics.Paused.Set(t.paused())
	if before == nil || before.Topic.Shards != doc.Topic.Shards {
		t.desired.Add(1)
	}
	t.changed.Fire()
}

// inForce returns what the document in force says about the shards.
func (t *topic) inForce() reshard.Document {
	version, s := t.desired.Load(), t.settings()
	return reshard.Document{Shards: s.Shards, Version: version, Tick: s.Tick}
}

// readShards reads the shard count of the topic's document from its source; 0 if there is
// no valid document.
func (t *topic) readShards(ctx context.Context) (int, error) {
	doc, there, err := t.sources.Read(ctx, t.name)
	if err != nil || !there || doc.Err != nil {
		return 0, err
	}
	return doc.Topic.Shards, nil
}

// scanned returns how many shards are polled; at least 1.
func (t *topic) scanned() int {
	p, _ := t.resharder.Known()
	return max(p.Scanned(), 1)
}

// await waits until holds returns true, or until ctx ends. The condition may depend only
// on the document and the placement.
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

// run serves the topic until ctx ends. Then it stops claiming and waits for its workers.
// Tasks in flight go on until shutDown.
func (t *topic) run(ctx context.Context) {
	pool := balance.Pool{Wanted: t.workers, Changed: t.changed.Next, Work: t.work}
	var all sync.WaitGroup
	for _, part := range []func(context.Context){t.announce, t.endPauses, t.resharder.Run, t.listen, t.route, t.keep,
		t.takeIn, pool.Run} {
		all.Go(func() { part(ctx) })
	}
	all.Wait()
}

// announce logs that the topic is served, once its placement is known.
func (t *topic) announce(ctx context.Context) {
	t.await(ctx, func() bool {
		p, removed := t.resharder.Known()
		return p.Epoch > 0 && !removed
	})
	if ctx.Err() == nil {
		t.log.InfoContext(ctx, "topic served", "shards", t.settings().Shards, "exchange", t.settings().Exchange)
	}
}

// scale returns how many workers this scanner runs for the topic, and how many tickets
// each of them draws per tick. Both are 0 before there is a placement.
func (t *topic) scale() (workers, tickets int) {
	p, _ := t.resharder.Known()
	if p.Epoch == 0 {
		return 0, 0
	}
	return balance.Scale(t.settings().Workers, p.Scanned(), t.live())
}

func (t *topic) workers() int {
	workers, _ := t.scale()
	return workers
}

// work runs one worker of the pool.
func (t *topic) work(ctx context.Context, number int) {
	t.metrics.Workers.Inc()
	defer t.metrics.Workers.Dec()
	t.newWorker(number).run(ctx)
}

// request returns a number that this process gives to no other claim or export. A worker
// that is started again has its predecessor's name, and batches of that one may be in
// flight.
func (t *topic) request() string { return strconv.FormatUint(t.requests.Add(1), 10) }

// listen passes messages on the wake channels of the polled shards to the waiters. When a
// placement was put in force, it makes the reconciler read it at once, because new tasks
// lie in its shards already.
func (t *topic) listen(ctx context.Context) {
	for ctx.Err() == nil {
		n := t.scanned()
		listening, cancel := context.WithCancel(ctx)
		go func() {
			defer cancel()
			t.await(listening, func() bool { return t.scanned() != n })
		}()
		t.store.Wakes(listening, n, t.waiters.notify, t.placed.Send, t.health.listens)
		cancel()
	}
}

// route gives the publisher the route of the settings in force. It may have to wait for
// the broker; nothing else of the topic waits for it.
func (t *topic) route(ctx context.Context) {
	for ctx.Err() == nil {
		doc := t.document.Load()
		route := routeOf(doc.Topic)
		t.publisher.SetRoute(route)
		t.routed.Store(doc)
		t.await(ctx, func() bool { return !reflect.DeepEqual(routeOf(*t.settings()), route) })
	}
}

// applying reports whether RabbitMQ still has to accept or refuse the settings in force.
func (t *topic) applying() bool {
	routed := t.routed.Load()
	if routed == nil || !reflect.DeepEqual(routeOf(routed.Topic), routeOf(*t.settings())) {
		return true
	}
	_, judged := t.publisher.Blocked()
	return !judged
}

// blocked returns the kind of problem that stops delivery and that waiting doesn't fix,
// as one of telemetry's reasons; "" if there is none.
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
		Exchange: s.Exchange, RoutingKey: s.RoutingKey, Lean: s.Headers == config.LeanHeaders, Window: s.Window,
		ConfirmTimeout: s.Lease / 2,
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
	orphan atomic.Bool        // its document is gone
	stop   context.CancelFunc // ends the workers
	done   chan struct{}      // closed when they have returned
	// The publisher and the settler, which outlast the workers.
	background errgroup.Group
	end        context.CancelFunc
}

// serve starts serving a topic. The workers run until working ends, the publisher and the
// settler until serving ends.
func (s *Scanner) serve(working context.Context, doc config.Document) *served {
	v := &served{topic: s.newTopic(doc), done: make(chan struct{})}
	working, v.stop = context.WithCancel(working)
	var serving context.Context
	serving, v.end = s.serving(working)
	v.background.Go(func() error { return v.topic.publisher.Run(serving) })
	v.background.Go(func() error { v.topic.settler.run(serving); return nil })
	s.support.Go(v.background.Wait)
	s.support.Go(func() error {
		defer close(v.done)
		v.topic.run(working)
		return nil
	})
	return v
}

// shutDown ends the workers and lets what is in flight end. When ctx ends, it releases
// the rest, which takes up to rest more.
func (v *served) shutDown(ctx context.Context, rest time.Duration) error {
	t := v.topic
	t.stopped.Store(true)
	v.stop()
	select {
	case <-v.done:
	case <-ctx.Done():
	}
	if err := t.publisher.Drain(ctx); err != nil {
		t.log.WarnContext(ctx, "messages not confirmed in time, tasks released", "error", err)
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
