// Package scanner is one member of the fleet. Its topics poll shards tick by tick,
// forward what is due and settle what RabbitMQ confirmed. Changes of the configuration
// apply while they run.
//
// A due task takes this way: package poll draws shards and starts a claim when the task is due.
// claim.Send leases it, and claim.publish hands it to the publisher. Then topic.resolved takes the
// outcome, and the settler removes the task from Redis or releases it.
package scanner

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/documents"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/intake"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/reshard"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/selfcheck"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/internal/tracing"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/internal/window"
)

// Config of one member of the fleet.
type Config struct {
	// Settings that are fixed while the process runs.
	Settings *config.Config
	// Source of the topics' documents.
	Source config.Source
	// SourceName names the source: config.FileSource or a config.ConsulSource. Redis
	// records it for each topic. A scanner applies its documents only to topics of its
	// own source. "" means that sources are neither recorded nor compared.
	SourceName string
	// Register announces this member in Consul; nil without Consul.
	Register Register
	// Store holds the fleet's data in Redis, under redis.prefix of the settings. The
	// caller closes its client.
	Store *shard.Store
	// Moving is Store with longer timeouts, for moving tasks: on a slow network, large
	// tasks take longer than other answers. Defaults to Store.
	Moving *shard.Store
	// Beat says when in a second the chores of this process run.
	Beat wake.Beat
	// Instance names this member in the fleet; it must be unique.
	Instance string
	// Version of the program, and the commit it was built from; "" means unknown.
	Version, Commit string
	Log             *slog.Logger
	// Registry takes the metrics. Defaults to one of its own.
	Registry *prometheus.Registry
	// TracerProvider makes spans of the tasks that carry a sampled trace. Defaults to nil:
	// no spans.
	TracerProvider trace.TracerProvider
}

// Register announces a member and what it reports about its configuration. It also keeps
// the identity of the fleet's data.
type Register interface {
	documents.Register
	selfcheck.Identities
}

// Scanner is one member of the fleet.
type Scanner struct {
	cfg          Config
	log          *slog.Logger
	store        *shard.Store
	outbound     *outbound
	inbound      *inbound
	routers      *router.Routers
	metrics      *Metrics
	tracer       trace.Tracer // nil: no spans
	admin        *telemetry.Server
	heartbeat    *balance.Heartbeat
	budget       *window.Budget
	documents    *documents.Reloader
	durability   *selfcheck.Durability
	identity     *selfcheck.Identity
	clock        *selfcheck.Clock
	certificates *selfcheck.Certificates
	holds        *holds
	convoy       *shard.Convoy
	alarms       *wake.Alarms
	pool         *wake.Pool // for claims and alarms
	listener     *shard.Listener
	sleepers     *sleepers
	groups       *groups
	tracker      problem.Tracker // of what the heartbeats report
	held         atomic.Bool     // a topic was paused or resumed in Redis since the last note
	note         struct {        // of the last note
		applied  uint64
		applying bool
	}

	mu     sync.Mutex
	topics map[string]*served // guarded by mu, as is listed
	listed []*served          // topics as a list, which nobody changes; nil: not made

	requests requests
	moving   reshard.Step // shared by all topics, as is starts
	starts   *semaphore.Weighted
	begun    atomic.Int64  // counts the topics that began to be served
	quiet    time.Duration // defaultQuiet, except in tests
	started  time.Time
	support  errgroup.Group // what serves until serving ends
	// serving returns a context that ends when serving does, the last thing of all. Run sets it.
	serving  func() (context.Context, context.CancelFunc)
	stopping atomic.Bool
}

// startsAtOnce is how many topics read their first placements, or store their documents, at a
// time. Calls of all topics would wait for a connection to Redis until they give up, and then
// again. It is many, so that a node that hangs delays topics of other nodes little.
const startsAtOnce = 256

// spareGoroutines is how many goroutines a scanner keeps for claims.
const spareGoroutines = 16

// New puts a member together and checks all that can be checked without a server. It
// starts nothing.
func New(cfg Config) (*Scanner, error) {
	if cfg.Registry == nil {
		cfg.Registry = telemetry.NewRegistry()
	}
	if cfg.Moving == nil {
		cfg.Moving = cfg.Store
	}
	s := &Scanner{cfg: cfg, log: cfg.Log, store: cfg.Store, budget: window.NewBudget(cfg.Settings.InFlightBytes),
		tracer: tracing.NewTracer(cfg.TracerProvider),
		moving: reshard.NewStep(), starts: semaphore.NewWeighted(startsAtOnce),
		quiet: defaultQuiet, routers: router.New(cfg.Store),
		topics: map[string]*served{}}
	if err := s.connect(); err != nil {
		return nil, err
	}
	var err error
	if s.metrics, err = NewMetrics(cfg.Registry, cfg.Settings.Admin,
		telemetry.Build{Version: cfg.Version, Commit: cfg.Commit}); err != nil {
		return nil, err
	}
	s.heartbeat = balance.NewHeartbeat(balance.HeartbeatConfig{
		Store: s.store, Instance: cfg.Instance, Describe: s.describe, Log: cfg.Log,
		Advice: adviceOnRedis, Pace: s.notePace, Beat: cfg.Beat,
	})
	s.listener, s.convoy, s.pool = s.store.NewListener(), s.store.NewConvoy(), wake.NewPool(spareGoroutines)
	s.alarms = wake.NewAlarms(s.pool)
	s.holds = &holds{store: s.store, beat: cfg.Beat, tell: s.holdTopics}
	s.durability = &selfcheck.Durability{Registry: s.store.Registry(), Metrics: s.metrics.checks, Log: cfg.Log}
	s.clock = &selfcheck.Clock{Registry: s.store.Registry(), Metrics: s.metrics.checks, Log: cfg.Log}
	s.sleepers = &sleepers{store: s.store, beat: cfg.Beat, live: s.live, every: netInterval,
		reads: stablePace, known: wake.NewSignal(), log: cfg.Log}
	s.groups = &groups{log: cfg.Log, every: groupsInterval}
	s.sleepers.topics, s.groups.topics = s.all, s.all
	s.identity = &selfcheck.Identity{Registry: s.store.Registry(), Fleet: cfg.Settings.Redis.Prefix, Lost: s.keepAgain,
		Log: cfg.Log}
	reload := documents.Config{Source: cfg.Source, SourceName: cfg.SourceName, Store: s.store, Instance: cfg.Instance,
		Fleet: s.members, Live: s.live, Serve: s.serve, Retire: s.retire, Placement: s.placement,
		Beat: cfg.Beat, Metrics: s.metrics.documents, Error: s.metrics.errors.Count, Log: cfg.Log}
	if cfg.Register != nil {
		s.identity.Kept, reload.Register = cfg.Register, cfg.Register
	}
	s.documents = documents.New(reload)
	s.metrics.set.Before(s.measure)
	return s, errors.Join(s.observe(), telemetry.AddProblems(s.cfg.Registry, cfg.Settings.Admin.TopicSeries, s.measured))
}

// connect prepares the connections to RabbitMQ: those to publish due tasks and answers on, and those
// of the intakes.
func (s *Scanner) connect() (err error) {
	urls, secure, err := connect.RabbitMQ(s.cfg.Settings.RabbitMQ, s.cfg.Log)
	if err != nil {
		return err
	}
	c := forward.Config{
		Latest: func() ([]string, *tls.Config) { return urls(), secure() }, URLs: s.cfg.Settings.RabbitMQ.URLs,
		TLS: secure(), Log: s.cfg.Log, Name: "duefleet " + s.cfg.Instance, Beat: s.cfg.Beat,
		Advice: func(text string) string { return connect.Advice("rabbitmq", text) },
	}
	s.outbound, err = newOutbound(c, func(more *forward.Connection) {
		s.support.Go(func() error {
			serving, cancel := s.serving()
			defer cancel()
			return more.Run(serving)
		})
	})
	if err != nil {
		return err
	}
	c.Receives, c.Name = true, c.Name+" intake"
	s.inbound = &inbound{connection: c, budget: s.budget, large: intake.NewLarge(s.cfg.Settings.InFlightBytes)}
	return nil
}

// Run serves topics until ctx ends. Then it stops claiming, settles what is in flight,
// releases the rest and closes, within the configured shutdown timeout. It fails at once
// only for errors that waiting can't fix, such as an admin address in use. It waits for
// servers that are away.
func (s *Scanner) Run(ctx context.Context) error {
	if err := s.admin.Listen(); err != nil {
		return err
	}
	s.started = time.Now()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	s.serving = func() (context.Context, context.CancelFunc) { return context.WithCancel(serving) }
	working, stopWorking := context.WithCancel(ctx) // claiming ends with it
	defer stopWorking()
	watching := &errgroup.Group{}
	s.support.Go(func() error { return s.outbound.all[0].Run(serving) })
	s.support.Go(func() error {
		defer stopWorking() // without it nobody could see the scanner's state
		return s.admin.Run(serving)
	})
	s.holds.read(working) // before anything is delivered
	s.support.Go(func() error { s.heartbeat.Run(serving); return nil })
	s.support.Go(func() error { s.holds.watch(working); return nil })
	s.support.Go(func() error { s.listener.Run(working); return nil })
	s.support.Go(func() error { s.sleepers.watch(working); return nil })
	s.support.Go(func() error { s.sleepers.wake(working); return nil })
	s.support.Go(func() error { s.giveTurns(working); return nil })
	s.support.Go(func() error { s.groups.watch(working); return nil })
	s.support.Go(func() error { s.documents.Follow(working); return nil })
	s.support.Go(func() error { s.durability.Watch(working); return nil })
	s.support.Go(func() error { s.identity.Watch(working); return nil })
	s.support.Go(func() error { s.clock.Watch(working); return nil })
	s.support.Go(func() error { s.certificates.Watch(working); return nil })
	s.log.InfoContext(ctx, "scanner started", "instance", s.cfg.Instance, "version", s.cfg.Version, "admin",
		s.admin.Addr())
	watching.Go(func() error { return s.documents.Watch(working, s.admin.Addr()) })
	<-working.Done()
	s.stopping.Store(true)
	s.log.InfoContext(ctx, "scanner stops: settling what is in flight", "timeout", s.cfg.Settings.ShutdownTimeout)
	err := s.end(context.WithoutCancel(ctx), func(ctx context.Context) error {
		err := s.shutDown(ctx, watching)
		stopServing()
		var ending sync.WaitGroup
		for _, v := range s.all() {
			ending.Go(v.wait)
		}
		ending.Wait()
		return errors.Join(err, s.support.Wait())
	})
	s.log.InfoContext(ctx, "scanner stopped")
	return err
}

// sweepPause is the least time between two looks of the fleet for a topic's orphaned tasks. All
// topics want one when a scanner starts. Each takes a ms of Redis's time, and in a Redis Cluster
// some 4,000 commands.
const sweepPause = 500 * time.Millisecond

// giveTurns lets one topic after another look for orphaned tasks, until ctx ends.
func (s *Scanner) giveTurns(ctx context.Context) {
	pause := func() { retry.Sleep(ctx, sweepPause*time.Duration(max(s.live(), 1))) }
	for ; ctx.Err() == nil; pause() {
		for _, v := range s.all() {
			if ctx.Err() == nil && v.topic.resharder.GiveTurn() {
				pause()
			}
		}
	}
}

func (s *Scanner) members(ctx context.Context) ([]balance.Member, error) {
	return balance.Members(ctx, s.store)
}

// end shuts down. When the time for that is over, it gives up calls that hang: they end
// when the caller closes its client.
func (s *Scanner) end(ctx context.Context, shutDown func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Settings.ShutdownTimeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- shutDown(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("not stopped within shutdown_timeout, %s: a server does not answer; tasks in flight are "+
			"delivered again when their leases end",
			s.cfg.Settings.ShutdownTimeout)
	}
}

// drainRest is the part of the shutdown timeout that is kept for writing the last
// outcomes to Redis, and again for leaving. Each is at most a quarter of it.
const drainRest = 2 * time.Second

// shutDown shuts down in this order: stop claiming, settle what is in flight, release the
// rest, leave.
func (s *Scanner) shutDown(ctx context.Context, watching *errgroup.Group) error {
	whole := s.cfg.Settings.ShutdownTimeout
	rest := min(drainRest, whole/4)
	ctx, cancel := context.WithTimeout(ctx, whole-2*rest)
	defer cancel()
	err := watching.Wait()
	var draining errgroup.Group
	for _, v := range s.all() {
		draining.Go(func() error { return v.shutDown(ctx, rest) })
	}
	err = errors.Join(err, draining.Wait())
	s.convoy.Wait()
	s.pool.Close()
	s.documents.Leave(ctx, s.admin.Addr(), rest)
	return err
}

// notePace returns how often the scanner reports about itself. A note looks at each topic, also at
// those that sleep. News that operators wait for, after a change or a pause, come with the next
// heartbeat.
func (s *Scanner) notePace() time.Duration {
	if s.note.applied != s.documents.State().Applied || s.note.applying || s.held.Swap(false) {
		return 0
	}
	return min(time.Duration(len(s.all()))*5*time.Millisecond, 10*time.Second)
}

// live returns how many scanners lived at the last heartbeat.
func (s *Scanner) live() int { return s.heartbeat.State().Live }

// describe returns what this member reports about itself to the others.
func (s *Scanner) describe() balance.Member {
	host, _ := os.Hostname()
	docs := s.documents.State()
	m := balance.Member{
		Instance: s.cfg.Instance, Host: host, PID: os.Getpid(), Version: s.cfg.Version, Started: s.started.UTC(),
		Admin: s.admin.Addr(), Applied: docs.Applied, Away: docs.Away, Source: s.cfg.SourceName, Refused: docs.Refused,
		Documents: s.documents.Hash(), Errors: docs.Errors, Blocked: map[string]string{}, Format: config.Format(),
		Problems: s.tracker.Track(time.Now().UTC(), s.problems()), Topics: map[string]balance.TopicNote{},
	}
	for _, v := range s.all() {
		if v.topic.routing.applying() {
			m.Applying = append(m.Applying, v.topic.name)
		} else if kind := v.topic.blocked(); kind != "" {
			m.Blocked[v.topic.name] = kind
		}
		if n := v.topic.topicNote(); !n.IsZero() { // else there is nothing to report
			m.Topics[v.topic.name] = n
		}
	}
	s.note.applied, s.note.applying = m.Applied, len(m.Applying) > 0
	return m
}

// Instance returns a name that no other process has.
func Instance() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s-%d-%d", cmp.Or(host, "unknown"), os.Getpid(), time.Now().UnixMilli()%1e6)
}
