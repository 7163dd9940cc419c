package scanner

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/documents"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/intake"
	"github.com/duefleet/duefleet/internal/poll"
	"github.com/duefleet/duefleet/internal/ratelog"
	"github.com/duefleet/duefleet/internal/reshard"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/settle"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/internal/window"
)

// topic is this scanner's work for one topic: its poller, its publisher, and what they share.
type topic struct {
	name      string
	instance  string
	store     *shard.Topic
	inForce   *documents.InForce
	publisher *forward.Publisher
	routing   *routing
	keeper    *documents.Keeper
	window    *window.Window
	settler   *settle.Settler
	polling   *polling
	poller    *poll.Poller
	retries   *retries
	minute    *balance.LastMinute
	resharder *reshard.Resharder
	health    *topicHealth
	logs      limitedLogs
	log       *slog.Logger
	metrics   *topicMetrics
	tracer    trace.Tracer         // nil: no spans
	live      func() int           // how many scanners of the fleet live
	beat      func() balance.State // the scanner's heartbeats
	requests  *requests            // shared by all topics, as is listener
	listening *shard.Listening
	sleep     sleep
	known     wake.Signal // shared by all topics; a placement is known

	tasks      *router.Router // for the intake, as the next three
	maxPayload int
	inbound    *inbound
	outbound   *forward.Connection
	// leaveOutbound gives back the topic's place on it.
	leaveOutbound func()
	intake        atomic.Pointer[intake.Intake] // nil while it is off

	stopped atomic.Bool               // no more claims.
	limited atomic.Pointer[time.Time] // when the rate last held tasks back; nil: never
	claimed atomic.Pointer[time.Time] // when a claim last found tasks; nil: never.
	asks    atomic.Int64              // how many tasks to claim next; 0: not known.
	quiet   time.Duration             // defaultQuiet, except in tests

	beganAsleep bool
}

// defaultQuiet is how long claims must find nothing until a topic is idle.
const defaultQuiet = 10 * time.Second

// newTopic puts a topic together and starts nothing.
func (s *Scanner) newTopic(doc config.Document) *topic {
	log, metrics := s.log.With("topic", doc.Name), s.metrics.topic(doc.Name)
	force := documents.NewInForce(doc, s.holds.of(doc.Name), metrics.Paused)
	t := &topic{
		name: doc.Name, instance: s.cfg.Instance, store: s.store.Topic(doc.Name), inForce: force,
		window: s.budget.Window(doc.Topic.Window), retries: newRetries(), minute: balance.NewLastMinute(),
		logs: newLimitedLogs(log), log: log, metrics: metrics, tracer: s.tracer,
		live: s.live, beat: s.heartbeat.State,
		requests: &s.requests, known: s.sleepers.known,
		tasks: s.routers.Topic(doc.Name), maxPayload: s.cfg.Settings.MaxPayload, inbound: s.inbound,
		quiet: s.quiet, beganAsleep: s.begun.Add(1) > startAwake,
	}
	t.sleep = sleep{now: s.sleepers.now, asleep: t.beganAsleep, next: never, heard: never, woken: time.Now(), starts: true}
	t.health = &topicHealth{log: log, metrics: metrics, errors: s.metrics.errors.Count,
		unsettled: ratelog.New(log, slog.LevelWarn, "outcomes not written to redis, trying again")}
	t.resharder = reshard.New(reshard.Config{
		Topic: t.store, Moving: s.cfg.Moving.Topic(doc.Name), InForce: t.aboutShards,
		Desired: func(ctx context.Context) (int, error) { return s.documents.Shards(ctx, doc.Name) },
		Shared:  s.cfg.Register != nil, Live: t.live, Workers: t.workers, Request: t.requests.next, Changed: &force.Changed,
		Pace: t.pace, Step: s.moving, Starts: s.starts,
		Report: t.health, Metrics: metrics.moves,
		Log: log, Advice: adviceOnRedis,
	})
	t.listening = s.listener.Listen(t.store,
		shard.Hearing{Woken: t.hear, Placed: force.Changed.Fire, Listens: t.health.listens})
	t.polling = &polling{topic: t}
	t.poller = poll.New(t.store, t.instance, s.convoy, s.alarms, s.pool, t.polling, &force.Changed)
	t.settler = settle.New(settle.Config{Topic: t.store, Convoy: s.convoy, Tasks: t.tasks, Window: t.window,
		Tried: t.health.settled, Metrics: metrics.settled})
	t.outbound, t.leaveOutbound = s.outbound.take()
	t.publisher = t.outbound.NewPublisher(doc.Name, routeOf(doc.Topic), t.resolved)
	t.publisher.Rest(t.sleep.asleep)
	t.routing = &routing{publisher: t.publisher, inForce: force}
	t.routing.routed.Store(force.Document())
	t.keeper = &documents.Keeper{Documents: s.documents, Topic: t.store, InForce: force, Placement: t.resharder.Known,
		Tried: t.health.Tried, Starts: s.starts, Log: log}
	return t
}

// apply puts a document in force, which has passed every check.
func (t *topic) apply(doc config.Document) {
	t.inForce.Put(doc)
	t.window.Resize(doc.Topic.Window)
	t.inForce.Changed.Fire()
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

// requests numbers claims and exports. Within this process no two have the same number, because
// they may have the same claimant.
type requests struct{ n atomic.Uint64 }

func (r *requests) next() string { return strconv.FormatUint(r.n.Add(1), 10) }

// aboutShards returns what the document in force says about the shards.
func (t *topic) aboutShards() reshard.Document {
	version, s := t.inForce.Desired()
	return reshard.Document{Shards: s.Shards, Version: version, Tick: s.Tick}
}

// scanned returns how many shards are polled; at least 1.
func (t *topic) scanned() int {
	p, _ := t.resharder.Known()
	return max(p.Scanned(), 1)
}

// begin serves the topic until ctx ends. Then call wait: it waits for the topic's claims. Tasks in
// flight go on until shutDown.
func (t *topic) begin(ctx context.Context) (wait func()) {
	t.poller.Start(ctx)
	chores := t.inForce.Changed.Follow(ctx, t.resharder.Chore(), t.announced(), t.listened(),
		&wake.Chore{Wanted: t.inForce.PauseEnds, Do: func(ctx context.Context) { t.inForce.EndPause(ctx, t.store, t.log) }},
		&wake.Chore{Wanted: t.routing.stale, Do: t.routing.apply},
		&wake.Chore{Wanted: t.keeper.Stale, Do: t.keeper.Keep},
		t.poller.Chore(),
		&wake.Chore{Wanted: func() bool { _, on := t.inlet(); return on }, Do: t.takeIn})
	return func() {
		t.poller.Stop()
		chores()
		t.polling.moving.Wait()
		t.metrics.Workers.Set(0)
		t.listening.Close()
	}
}

// announced logs that the topic is served, once its placement is known. Then the sleepers take
// their first look at it.
func (t *topic) announced() *wake.Chore {
	done := false
	return &wake.Chore{
		Wanted: func() bool {
			p, removed := t.resharder.Known()
			return !done && p.Epoch > 0 && !removed
		},
		Do: func(ctx context.Context) {
			done = true
			t.known.Send()
			s := t.inForce.Settings()
			t.log.InfoContext(ctx, "topic served", "shards", s.Shards, "exchange", s.Exchange)
		},
	}
}

// listened listens to the wake channels of the polled shards.
func (t *topic) listened() *wake.Chore {
	n := 0
	return &wake.Chore{
		Wanted: func() bool { return t.scanned() != n },
		Do: func(context.Context) {
			n = t.scanned()
			t.listening.Shards(n)
		},
	}
}

// workers returns how many claims this scanner may have under way, and how many movers it runs.
func (t *topic) workers() int {
	n, _ := balance.Scale(t.inForce.Settings().Workers, t.scanned(), t.live())
	return n
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
