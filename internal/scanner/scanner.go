package scanner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
)

// Config of one member of the fleet.
type Config struct {
	// Settings that are fixed while the process runs.
	Settings *config.Config
	// Source of the topics' documents.
	Source config.Source
	// Register announces this member where Consul is configured; nil elsewhere.
	Register Register
	// Redis is the client; the caller closes it.
	Redis redis.UniversalClient
	// Instance names this member in the fleet; it must be unique.
	Instance string
	// Version of the program.
	Version string
	Log     *slog.Logger
	// Registry takes the metrics. Defaults to one of its own.
	Registry *prometheus.Registry
}

// Register announces a member and what it thinks of its configuration.
type Register interface {
	Register(ctx context.Context, instance, adminAddr string) error
	Deregister(ctx context.Context, adminAddr string) error
	WriteStatus(ctx context.Context, instance string, note []byte) error
	DeleteStatus(ctx context.Context, instance string) error
}

// Scanner is one member of the fleet.
type Scanner struct {
	cfg        Config
	log        *slog.Logger
	store      *shard.Store
	connection *forward.Connection
	metrics    *telemetry.Metrics
	admin      *telemetry.Server

	requests atomic.Uint64 // claims and exports asked for so far

	started   time.Time
	heartbeat *balance.Heartbeat

	denied   denials                // of what is no topic's
	unlisted atomic.Pointer[string] // why Consul refuses to register this member; nil: it does not

	restored atomic.Bool // the documents that Redis keeps were read

	serving context.Context //nolint:containedctx // the life of what outlasts the workers; set once by Run
	working context.Context //nolint:containedctx // ends when claiming must
	support *errgroup.Group

	sourceBack chan struct{} // the source of the settings answers again
	notes      chan []byte   // the newest that Consul has not got

	mu      sync.Mutex
	topics  map[string]*served
	applied applied
}

// served is a topic that is being served.
type served struct {
	*topic
	orphan atomic.Bool // its document vanished
	stop   context.CancelFunc
	done   chan struct{}
	// What outlasts the workers, until the end: it publishes and settles.
	background errgroup.Group
	end        context.CancelFunc
}

// New puts a member together and checks all that can be checked without
// talking to a server. It starts nothing.
func New(cfg Config) (*Scanner, error) {
	if cfg.Registry == nil {
		cfg.Registry = telemetry.NewRegistry()
	}
	store, err := shard.New(cfg.Redis, cfg.Settings.Redis.Prefix)
	if err == nil {
		err = store.AwaitReplicas(cfg.Settings.Redis.MinReplicas)
	}
	if err != nil {
		return nil, err
	}
	s := &Scanner{cfg: cfg, log: cfg.Log, store: store, sourceBack: make(chan struct{}, 1), notes: make(chan []byte, 1), topics: map[string]*served{}}
	s.applied.errors, s.applied.kept = map[string]string{}, map[string]bool{}
	s.heartbeat = balance.NewHeartbeat(balance.HeartbeatConfig{
		Store: store, Instance: cfg.Instance, Describe: s.describe, After: s.measure, Log: cfg.Log,
		Advice: func(text string) string { return config.Advice("redis", text) },
	})
	tlsConfig, err := cfg.Settings.RabbitMQ.TLS.Config()
	if err != nil {
		return nil, fmt.Errorf("rabbitmq.tls: %w", err)
	}
	s.connection, err = forward.New(forward.Config{
		URLs: cfg.Settings.RabbitMQ.URLs, TLS: tlsConfig, Log: cfg.Log, Name: "duefleet " + cfg.Instance,
		Advice: func(text string) string { return config.Advice("rabbitmq", text) },
	})
	if err != nil {
		return nil, err
	}
	if s.metrics, err = telemetry.NewMetrics(cfg.Registry, cfg.Settings.Admin.ShardSeries); err != nil {
		return nil, err
	}
	return s, s.observe()
}

// Run serves topics until ctx ends; then it stops claiming, settles what is in
// flight, gives back the rest and closes, within the configured shutdown
// timeout. It fails at once only for what waiting can't mend, as an admin
// address in use: servers that are away it waits for.
func (s *Scanner) Run(ctx context.Context) error {
	if err := s.admin.Listen(); err != nil {
		return err
	}
	s.started = time.Now()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	working, stopWorking := context.WithCancel(ctx)
	defer stopWorking()
	s.serving, s.working, s.support = serving, working, &errgroup.Group{}
	s.support.Go(func() error { return s.connection.Run(serving) })
	s.support.Go(func() error {
		defer stopWorking() // without it nobody could see how the scanner does
		return s.admin.Run(serving)
	})
	s.support.Go(func() error { s.heartbeat.Run(serving); return nil })
	s.support.Go(func() error { s.followRedis(working); return nil })
	s.log.InfoContext(ctx, "scanner started", "instance", s.cfg.Instance, "version", s.cfg.Version, "admin", s.admin.Addr())

	var watching errgroup.Group
	watching.Go(func() error { return s.watch(working) })
	watching.Go(func() error { return s.announce(working) })
	watching.Go(func() error { return s.tell(working) })
	<-working.Done()
	s.log.InfoContext(ctx, "scanner stops: settling what is in flight", "timeout", s.cfg.Settings.ShutdownTimeout)
	err := s.end(context.WithoutCancel(ctx), &watching, stopServing)
	s.log.InfoContext(ctx, "scanner stopped")
	return err
}

// end shuts down, and when the time for that is over gives up what hangs: a call to a
// server that stands still ends with the caller's client.
func (s *Scanner) end(ctx context.Context, watching *errgroup.Group, stopServing context.CancelFunc) error {
	whole := s.cfg.Settings.ShutdownTimeout
	ctx, cancel := context.WithTimeout(ctx, whole)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		err := s.shutDown(ctx, watching)
		stopServing()
		ended <- errors.Join(err, s.support.Wait())
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("not stopped within shutdown_timeout, %s: a server does not answer; tasks in flight are delivered again when their leases end", whole)
	}
}

// shutDown is the order of shutting down: stop claiming, settle what is in
// flight, release the rest, leave.
func (s *Scanner) shutDown(ctx context.Context, watching *errgroup.Group) error {
	whole := s.cfg.Settings.ShutdownTimeout
	rest := min(drainRest, whole/4)
	ctx, cancel := context.WithTimeout(ctx, whole-2*rest)
	defer cancel()
	err := watching.Wait()
	var draining errgroup.Group
	for _, t := range s.all() {
		t.stopped.Store(true)
		draining.Go(func() error { return t.shutDown(ctx, rest) })
	}
	err = errors.Join(err, draining.Wait())
	s.depart(ctx, rest)
	return err
}

// shutDown waits for a topic's workers and drains what they left.
func (t *served) shutDown(ctx context.Context, rest time.Duration) error {
	t.stop()
	select {
	case <-t.done:
	case <-ctx.Done():
	}
	return t.drain(ctx, rest)
}

// retire ends a topic that is not served any more: it lets what is in flight end,
// as long as that takes, then closes the channel, so that nothing is declared
// again that its operator deletes. The metrics stay if the topic was made anew
// meanwhile: they are that one's, too.
func (s *Scanner) retire(v *served) error {
	err := v.shutDown(s.serving, 0)
	v.end()
	err = errors.Join(err, v.background.Wait())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[v.name] == nil {
		s.metrics.Forget(v.name)
	}
	return err
}

func (s *Scanner) all() []*served {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*served, 0, len(s.topics))
	for _, t := range s.topics {
		all = append(all, t)
	}
	return all
}

// newTopic puts a topic together and starts nothing.
func (s *Scanner) newTopic(name string, settings config.Topic) *topic {
	t := &topic{
		name: name, instance: s.cfg.Instance, store: s.store.Topic(name), source: s.cfg.Source, shared: s.cfg.Register != nil,
		window: newWindow(settings.Window), bells: newBells(), log: s.log.With("topic", name),
		all: s.metrics, metrics: s.metrics.Topic(name), live: func() int { return s.heartbeat.State().Live },
		requests: &s.requests, clean: map[int]bool{}, fences: map[int]shard.Placement{}, claimed: map[int]bool{}, placed: make(chan struct{}, 1),
	}
	t.notices = newNotices(t.log)
	t.settler = newSettler(t.store, t.window, t.unsettled)
	t.publisher = s.connection.NewPublisher(name, route(settings), t.resolved)
	t.apply(settings)
	return t
}

// serve starts serving a topic; s.mu is held.
func (s *Scanner) serve(name string, settings config.Topic) *served {
	t := s.newTopic(name, settings)
	ctx, stop := context.WithCancel(s.working)
	serving, end := context.WithCancel(s.serving)
	v := &served{topic: t, stop: stop, end: end, done: make(chan struct{})}
	s.topics[name] = v
	v.background.Go(func() error { return t.publisher.Run(serving) })
	v.background.Go(func() error { t.settler.run(serving); return nil })
	s.support.Go(v.background.Wait)
	s.support.Go(func() error {
		defer close(v.done)
		return t.run(ctx)
	})
	return v
}

// unsettled notes that Redis could not be told what became of tasks; it is
// tried again. No error means that it was.
func (t *topic) unsettled(operation string, err error) {
	if t.denied.note(operation, err); err == nil {
		return
	}
	t.all.Error(operation)
	t.notices.unsettled.Say(context.Background(), "operation", operation, "error", redisText(err))
}

// Instance makes a name for this process that no other has.
func Instance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%d", host, os.Getpid(), time.Now().UnixMilli()%1e6)
}
