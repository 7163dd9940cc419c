package consumer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/ratelog"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/tracing"
	"github.com/duefleet/duefleet/task"
)

// Config configures a Consumer.
type Config struct {
	// URLs of RabbitMQ, tried in turn, as in amqp://user:password@host:5672/vhost.
	// Required.
	URLs []string
	// TLS is for amqps:// URLs. Defaults to the system's certificate authorities.
	TLS *tls.Config
	// Queue to consume from. It must exist, or a scanner must create it (declare) within
	// QueueTimeout. A message that isn't from duefleet goes to the queue's dead-letter
	// exchange, or is lost if the queue has none. Required.
	Queue string
	// Redis is the caller's client for the scanners' Redis; Run leaves it open. For a Redis
	// Cluster it must be a *redis.ClusterClient. Either Redis or Options must be given.
	Redis redis.UniversalClient
	// Options are for a client that New makes. It is closed when Run returns.
	Options *redis.UniversalOptions
	// Prefix of every key: redis.prefix of the scanners. Defaults to "duefleet".
	Prefix string

	// MinReplicas is the number of Redis replicas that must have a retry before its
	// delivery is acked, at most 10; see producer.Config. Defaults to 0.
	MinReplicas int

	// Handler handles every task. Required.
	Handler Handler
	// Policy decides about retries; NoRetry for none. Defaults to
	// Exponential(time.Second, time.Hour, 60). A task that always fails is then parked after
	// 24 to 48 hours.
	Policy Policy
	// OnParked is called when this consumer has parked a task, with the error that parked
	// it. The task is stored as parked, and its delivery isn't acked yet. After a crash in
	// between, the handler runs again, so OnParked may be called twice for one task. It
	// occupies a handler's place, and ctx ends after Timeout. A panic is logged, and the
	// task stays parked. It isn't called if a scanner parks a task. Defaults to nil.
	OnParked func(ctx context.Context, t task.Task, err error)
	// Timeout limits one run of the handler. Defaults to 30s.
	Timeout time.Duration
	// MinStep is the minimum delay of a next step, from when it is stored. It slows down
	// a chain that asks for no delay. Negative: no minimum. Defaults to 100ms.
	MinStep time.Duration
	// Concurrency is the number of handlers that run at once. Defaults to 10.
	Concurrency int
	// Prefetch is the largest number of deliveries that this consumer holds: Concurrency
	// to 65535. Deliveries in handlers count. Deliveries that wait because Redis refuses
	// calls for their topic or task count, too: once Prefetch of them wait, RabbitMQ sends
	// no others. It bounds their number, not their bytes. A task has at most max_payload. A message of
	// another publisher may be as large as RabbitMQ's max_message_size. That is 16 MiB since 4.0
	// and 128 MiB before, if nobody set it. Defaults to twice Concurrency.
	Prefetch int
	// QueueTimeout is how long Run waits for the queue to exist before it returns an
	// error. It applies only until Run has consumed once. Negative: no limit. Defaults to
	// 1m.
	QueueTimeout time.Duration
	// StopTimeout is how long running handlers may take to finish after Run's context
	// ends. Defaults to 15s.
	StopTimeout time.Duration
	// Remember is how long a delivery is remembered as done, by topic, ID and due. That
	// takes about 270 bytes of Redis and two round trips for each delivery
	// (BenchmarkConsume). Negative: nothing is remembered, and the first attempt of a task
	// that the producer scheduled is handled without a call to Redis. Defaults to 24h.
	Remember time.Duration
	// MaxPayload is the largest payload that is handled, in bytes, at most 16 MiB. Set it
	// to the limit of the producers. A task with a larger payload is parked without
	// calling the handler, and the reason names the size and the limit. Raise MaxPayload,
	// then replay the task. A message above 16 MiB is rejected, because it can't be a
	// task. Defaults to 256 KiB.
	MaxPayload int

	// Name is shown in RabbitMQ's lists of connections and consumers. Defaults to
	// "duefleet".
	Name string
	// Log gets outages and failures, never payloads. Lines about tasks come at most once a
	// minute for each topic and kind, with the number of lines left out as "more".
	// Defaults to slog.Default().
	Log *slog.Logger
	// Registerer registers the metrics, duefleet_consumer_*. Consumers may share one.
	// Defaults to nil: no metrics.
	Registerer prometheus.Registerer
	// TracerProvider makes a span for each run of the handler, whose context carries it;
	// often otel.GetTracerProvider(). If the task was due more than a minute after it was
	// scheduled, the span begins a new trace, with a link. See docs/tracing.md. Defaults to
	// nil: no spans.
	TracerProvider trace.TracerProvider

	step func(step)       // tests: called after each step
	hold time.Duration    // tests: replaces holdFor
	now  func() time.Time // tests: replaces time.Now
}

// step names a step of handling a delivery. Tests end the process after one.
type step string

const (
	stepHandled    step = "handled"
	stepRemembered step = "remembered"
	stepAllowed    step = "allowed"
	stepStored     step = "stored"
	stepAcked      step = "acked"
)

// Consumer consumes from one queue.
type Consumer struct {
	cfg     Config
	store   *store
	close   func() error
	metrics *metrics
	tracer  trace.Tracer // nil: none
	reports reports
	// These limit the rate of log lines that could come once for each delivery.
	refused, unstored, refusedOne, unknown *ratelog.Logger
	busy                                   busy
	ran                                    atomic.Bool
}

// New checks the configuration and starts nothing. An error names a bad URL by its index,
// because the URL may hold a password.
func New(cfg Config) (*Consumer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("consumer: register metrics: %w", err)
	}
	shards, closeRedis, err := shard.Open(cfg.Redis, cfg.Options, cfg.Prefix, cfg.MinReplicas)
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	return &Consumer{
		cfg: cfg, close: closeRedis, metrics: m, tracer: tracing.NewTracer(cfg.TracerProvider),
		store: &store{Store: shards, routers: router.New(shards), window: cfg.Remember, clock: cfg.now,
			removed: map[string]time.Time{},
			met:     map[string]bool{}},
		reports:    reports{log: cfg.Log, kinds: map[kind]*ratelog.Logger{}},
		refused:    ratelog.New(cfg.Log, slog.LevelWarn, "delivery rejected, it isn't a task"),
		unstored:   ratelog.New(cfg.Log, slog.LevelError, "redis can't be used, retrying"),
		refusedOne: ratelog.New(cfg.Log, slog.LevelError, "redis refuses one task, its delivery waits"),
		unknown: ratelog.New(cfg.Log, slog.LevelError,
			"no scanner serves the topic under this prefix of this redis, its delivery waits: give the consumer the "+
				"scanners' redis and prefix"),
	}, nil
}

func (cfg Config) withDefaults() Config {
	orDefault(&cfg.Prefix, "duefleet")
	orDefault(&cfg.Timeout, 30*time.Second)
	orDefault(&cfg.Concurrency, 10)
	orDefault(&cfg.Prefetch, 2*cfg.Concurrency)
	orDefault(&cfg.StopTimeout, 15*time.Second)
	orDefault(&cfg.QueueTimeout, time.Minute)
	orDefault(&cfg.MinStep, 100*time.Millisecond)
	orDefault(&cfg.Remember, 24*time.Hour)
	orDefault(&cfg.MaxPayload, task.DefaultMaxPayload)
	orDefault(&cfg.Name, "duefleet")
	if cfg.Policy == nil {
		cfg.Policy = defaultPolicy()
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	orDefault(&cfg.hold, holdFor)
	if cfg.now == nil {
		cfg.now = time.Now
	}
	if cfg.step == nil {
		cfg.step = func(step) {}
	}
	return cfg
}

func orDefault[T comparable](value *T, other T) {
	var zero T
	if *value == zero {
		*value = other
	}
}

// The limits of AMQP: a short string, in bytes, and a prefetch count.
const (
	maxShortString = 255
	maxPrefetch    = 1<<16 - 1
)

func (cfg Config) check() error {
	switch {
	case len(cfg.URLs) == 0:
		return errors.New("Config.URLs must name a broker, as in amqp://user:password@host:5672/vhost")
	case cfg.Queue == "":
		return errors.New("Config.Queue must name a queue")
	case len(cfg.Queue) > maxShortString:
		return fmt.Errorf("Config.Queue must be at most %d bytes; got %d", maxShortString, len(cfg.Queue))
	case len(cfg.Name) > maxShortString:
		return fmt.Errorf("Config.Name must be at most %d bytes; got %d", maxShortString, len(cfg.Name))
	case cfg.Handler == nil:
		return errors.New("Config.Handler must be given")
	case cfg.Concurrency < 0:
		return fmt.Errorf("Config.Concurrency must be at least 1; got %d", cfg.Concurrency)
	case cfg.Prefetch < cfg.Concurrency || cfg.Prefetch > maxPrefetch:
		return fmt.Errorf("Config.Prefetch must be Config.Concurrency, which is %d, to %d; got %d",
			cfg.Concurrency, maxPrefetch, cfg.Prefetch)
	case cfg.Timeout < 0:
		return fmt.Errorf("Config.Timeout must be above 0; got %s", cfg.Timeout)
	case cfg.StopTimeout < 0:
		return fmt.Errorf("Config.StopTimeout must be above 0; got %s", cfg.StopTimeout)
	case cfg.MaxPayload < 0 || cfg.MaxPayload > task.MaxMaxPayload:
		return fmt.Errorf("Config.MaxPayload must be 1 to %d bytes; got %d", task.MaxMaxPayload, cfg.MaxPayload)
	}
	if _, _, err := cfg.Policy.call(task.Task{Attempt: 1}, errUnknown); err != nil {
		return err
	}
	for i, url := range cfg.URLs {
		if _, err := amqpconn.Parse(url, cfg.TLS); err != nil {
			return fmt.Errorf("Config.URLs[%d] %w", i, err)
		}
	}
	return nil
}
