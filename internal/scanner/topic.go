package scanner

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/intake"
	"github.com/duefleet/duefleet/internal/ratelog"
	"github.com/duefleet/duefleet/internal/reshard"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/internal/wake"
)

// topic is this scanner's work for one topic: its workers, its publisher, and what they
// share.
type topic struct {
	name      string
	instance  string
	store     *shard.Topic
	inForce   *inForce
	publisher *forward.Publisher
	routing   *routing
	keeper    *keeper
	window    *window
	settler   *settler
	waiters   *waiters
	retries   *retries
	minute    *lastMinute
	resharder *reshard.Resharder
	health    *topicHealth
	logs      limitedLogs
	log       *slog.Logger
	metrics   *telemetry.TopicMetrics
	tracer    trace.Tracer         // nil: no spans
	live      func() int           // how many scanners of the fleet live
	beat      func() balance.State // the scanner's heartbeats
	requests  *requests            // shared by all topics, as is listener
	listening *shard.Listening
	sleep     sleep
	known     wake.Signal // shared by all topics; a placement is known
	placed    wake.Signal // a placement was put in force

	tasks      *router.Router // for the intake, as the next three
	maxPayload int
	inbound    *inbound
	outbound   *forward.Connection
	intake     atomic.Pointer[intake.Intake] // nil while it is off

	stopped atomic.Bool               // no more claims.
	limited atomic.Pointer[time.Time] // when the rate last held tasks back; nil: never
	claimed atomic.Pointer[time.Time] // when a claim last found tasks; nil: never
	quiet   time.Duration             // defaultQuiet, except in tests
}

// defaultQuiet is how long claims must find nothing until a topic is idle.
const defaultQuiet = 10 * time.Second

// newTopic puts a topic together and starts nothing.
func (s *Scanner) newTopic(doc config.Document) *topic {
	log, metrics := s.log.With("topic", doc.Name), s.metrics.Topic(doc.Name)
	force := &inForce{pausing: metrics.Paused}
	force.held.Store(s.holds.of(doc.Name))
	force.setDocument(doc)
	t := &topic{
		name: doc.Name, instance: s.cfg.Instance, store: s.store.Topic(doc.Name), inForce: force,
		window: s.budget.window(doc.Topic.Window), waiters: newWaiters(), retries: newRetries(), minute: newLastMinute(),
		logs: newLimitedLogs(log), log: log, metrics: metrics, tracer: s.tracer,
		live: func() int { return s.heartbeat.State().Live }, beat: s.heartbeat.State,
		requests: &s.requests, placed: wake.NewSignal(), known: s.sleepers.known,
		tasks: s.routers.Topic(doc.Name), maxPayload: s.cfg.Settings.MaxPayload, inbound: s.inbound, outbound: s.connection,
		quiet: s.quiet, sleep: sleep{now: s.sleepers.now, asleep: s.begun.Add(1) > startAwake, next: never, heard: never,
			woken: time.Now(), starts: true},
	}
	t.health = &topicHealth{log: log, metrics: metrics, errors: s.metrics.Error,
		unsettled: ratelog.New(log, slog.LevelWarn, "outcomes not written to redis, trying again")}
	t.resharder = reshard.New(reshard.Config{
		Topic: t.store, Moving: s.cfg.Moving.Topic(doc.Name), InForce: force.aboutShards,
		Desired: func(ctx context.Context) (int, error) { return s.sources.shards(ctx, doc.Name) },
		Shared:  s.cfg.Register != nil, Live: t.live, Workers: t.workers, Request: t.requests.next, Changed: &force.changed,
		Placed: t.placed, Pace: t.pace, Step: s.moving, Turns: s.sweeps, Report: t.health, Metrics: metrics,
		Log: log, Advice: adviceOnRedis,
	})
	t.listening = s.listener.Listen(t.store,
		shard.Hearing{Woken: t.hear, Placed: t.placed.Send, Listens: t.health.listens})
	t.settler = newSettler(t.store, t.tasks, t.window, t.health.settled)
	t.publisher = s.connection.NewPublisher(doc.Name, routeOf(doc.Topic), t.resolved)
	t.publisher.Rest(t.sleep.asleep)
	t.routing = &routing{publisher: t.publisher, inForce: force}
	t.keeper = &keeper{store: t.store, sources: s.sources, inForce: force, resharder: t.resharder, health: t.health,
		log: log}
	return t
}

// apply puts a document in force, which has passed every check.
func (t *topic) apply(doc config.Document) {
	t.inForce.setDocument(doc)
	t.window.resize(doc.Topic.Window)
	t.inForce.changed.Fire()
}

// limitedLogs are a topic's kinds of log lines that may occur once per task.
type limitedLogs struct {
	parked, refused, broken *ratelog.Logger

	skipped *unreadable // also counts
}

func newLimitedLogs(log *slog.Logger) limitedLogs {
	return limitedLogs{
		parked:  ratelog.New(log, slog.LevelError, "task parked"),
		refused: ratelog.New(log, slog.LevelWarn, "task not accepted by the broker, to be tried again"),
		skipped: newUnreadable(ratelog.New(log, slog.LevelError, "tasks left alone: no record, or one of a newer format")),
		broken:  ratelog.New(log, slog.LevelError, "task with a broken record parked"),
	}
}

// requests numbers claims and exports. Within this process no two have the same number. A
// worker that is started again has its predecessor's name, and batches of that one may be
// in flight.
type requests struct{ n atomic.Uint64 }

func (r *requests) next() string { return strconv.FormatUint(r.n.Add(1), 10) }

// scanned returns how many shards are polled; at least 1.
func (t *topic) scanned() int {
	p, _ := t.resharder.Known()
	return max(p.Scanned(), 1)
}

// run serves the topic until ctx ends. Then it stops claiming and waits for its workers.
// Tasks in flight go on until shutDown.
func (t *topic) run(ctx context.Context) {
	work := func(ctx context.Context, number int) {
		t.metrics.Workers.Inc()
		defer t.metrics.Workers.Dec()
		t.newWorker(number).run(ctx)
	}
	pool := balance.Pool{Wanted: t.workers, Changed: t.inForce.changed.Next, Work: work}
	var all sync.WaitGroup
	all.Go(func() { t.resharder.Run(ctx) })
	all.Go(func() { pool.Run(ctx) })
	defer t.listening.Close()
	t.inForce.follow(ctx, t.announced(), t.listened(),
		&chore{wanted: t.inForce.pauseEnds, do: func(ctx context.Context) { t.inForce.endPause(ctx, t.store, t.log) }},
		&chore{wanted: t.routing.stale, do: t.routing.apply},
		&chore{wanted: t.keeper.stale, do: t.keeper.keep},
		&chore{wanted: func() bool { _, on := t.inlet(); return on }, do: t.takeIn})
	all.Wait()
}

// announced logs that the topic is served, once its placement is known. Then the sleepers take
// their first look at it.
func (t *topic) announced() *chore {
	done := false
	return &chore{
		wanted: func() bool {
			p, removed := t.resharder.Known()
			return !done && p.Epoch > 0 && !removed
		},
		do: func(ctx context.Context) {
			done = true
			t.known.Send()
			s := t.inForce.settings()
			t.log.InfoContext(ctx, "topic served", "shards", s.Shards, "exchange", s.Exchange)
		},
	}
}

// listened listens to the wake channels of the polled shards.
func (t *topic) listened() *chore {
	n := 0
	return &chore{
		wanted: func() bool { return t.scanned() != n },
		do: func(context.Context) {
			n = t.scanned()
			t.listening.Shards(n)
		},
	}
}

// scale returns how many workers this scanner runs for the topic, and how many tickets
// each of them draws per tick. Both are 0 before there is a placement, and in a sleeping topic. In an idle topic one
// worker draws the tickets of all (docs/adr/0025). While tasks move it isn't idle, because
// each worker moves some.
func (t *topic) scale() (workers, tickets int) {
	p, _ := t.resharder.Known()
	if p.Epoch == 0 || p.Phase == shard.Stable && t.asleep() {
		return 0, 0
	}
	s := t.inForce.settings()
	workers, tickets = balance.Scale(s.Workers, p.Scanned(), t.live())
	last := t.claimed.Load()
	if s.Workers > 0 || p.Phase == shard.Migrating || last != nil && time.Since(*last) < t.quiet {
		return workers, tickets
	}
	tickets = min(workers*tickets, p.Scanned())
	if last == nil || time.Since(*last) > t.quiet+2*s.Tick { // until then the first worker draws all of them
		workers = 1
	}
	return workers, tickets
}

// found notes that a claim found tasks. The first one after a quiet time starts the other
// workers.
func (t *topic) found(at time.Time) {
	if last := t.claimed.Swap(&at); last == nil || at.Sub(*last) > t.quiet {
		t.inForce.changed.Fire()
	}
}

func (t *topic) workers() int {
	workers, _ := t.scale()
	return workers
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

// served is a topic that is being served.
type served struct {
	topic  *topic
	orphan atomic.Bool        // its document is gone
	stop   context.CancelFunc // ends the workers
	done   chan struct{}      // closed when they have returned
	// The publisher and the settler, which outlast the workers.
	background sync.WaitGroup
	end        context.CancelFunc
}

// serve starts serving a topic. The workers run until working ends, the publisher and the
// settler until serving ends.
func (s *Scanner) serve(working context.Context, doc config.Document) *served {
	v := &served{topic: s.newTopic(doc), done: make(chan struct{})}
	working, v.stop = context.WithCancel(working)
	var serving context.Context
	serving, v.end = s.serving()
	v.background.Add(2)
	s.support.Go(func() error { defer v.background.Done(); return v.topic.publisher.Run(serving) })
	s.support.Go(func() error { defer v.background.Done(); v.topic.settler.run(serving); return nil })
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
