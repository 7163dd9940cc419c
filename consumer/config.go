package consumer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/notice"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Config of a Consumer.
type Config struct {
	// URLs of RabbitMQ are tried in turn, as in amqp://user:password@host:5672/vhost.
	// Required.
	URLs []string
	// TLS is used with amqps:// URLs. Defaults to the system's authorities.
	TLS *tls.Config
	// Queue to consume from; it must exist, or be made by a scanner (declare) within
	// QueueTimeout. What is no message of duefleet goes to
	// its dead-letter exchange, or is lost where it has none. Required.
	Queue string
	// Redis is the caller's client, which Run leaves open. Either it or Options
	// must be given: the Redis of the scanners.
	Redis redis.UniversalClient
	// Options make a client of our own, which ends with Run.
	Options *redis.UniversalOptions
	// Prefix of every key; the scanners' redis.prefix. Defaults to "duefleet".
	Prefix string

	// MinReplicas of Redis must have a retry before its delivery is acked, at most
	// 10; see producer.Config. Defaults to 0.
	MinReplicas int

	// Handler of every task. Required.
	Handler Handler
	// Policy of retries; NoRetry for none. Defaults to
	// Exponential(time.Second, 5*time.Minute, 10).
	Policy Policy
	// Timeout is the deadline of one handler. Defaults to 30s.
	Timeout time.Duration
	// MinStep is the least time from when a next step is stored until it is due, so that
	// a chain that asks for no delay doesn't run as fast as it can. Negative: none.
	// Defaults to 100ms.
	MinStep time.Duration
	// Concurrency is how many handlers run at once. Defaults to 10.
	Concurrency int
	// Prefetch is how many deliveries this consumer holds, those that handlers
	// have included, and those that wait because Redis refuses a call for their
	// topic alone: Prefetch of these hold up the queue. At most 65535. Defaults to twice
	// Concurrency.
	Prefetch int
	// QueueTimeout is for how long a Run that has not consumed before waits for the queue
	// to be made, before it returns an error. Negative: for ever. Defaults to 1m.
	QueueTimeout time.Duration
	// StopTimeout is how long running handlers have to finish once Run's context
	// ends. Defaults to 15s.
	StopTimeout time.Duration
	// Remember is for how long a delivery is remembered as done, by topic, ID and
	// due; that takes some 270 bytes of Redis a delivery, and two round trips.
	// Negative: not at all, and handlers of first attempts start without asking
	// Redis, but for next steps. Defaults to 24h. BenchmarkConsume measures what it costs.
	Remember time.Duration
	// MaxPayload is the largest payload handled, in bytes, at most 16 MiB. A larger
	// task is parked without its handler, with the size and the limit as the reason:
	// raise MaxPayload and replay it. Give it the value that producers have. A message
	// above 16 MiB is no task. Defaults to 256 KiB.
	MaxPayload int

	// Name is shown in RabbitMQ's lists of connections and consumers. Defaults to
	// "duefleet".
	Name string
	// Log takes outages and what fails. Payloads are never logged. Defaults to
	// slog.Default().
	Log *slog.Logger
	// Registerer takes the metrics, duefleet_consumer_*. Consumers may share one.
	// Defaults to none.
	Registerer prometheus.Registerer

	step func(step)       // a test's: what was just done
	hold time.Duration    // a test's: holdFor
	now  func() time.Time // a test's: time.Now
}

// step of an outcome, after which a test may end the process.
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
	// Kinds of lines of which there may be one for each delivery.
	parked, panicked, refused, unstored, refusedOne, unknown, removed *notice.Notice
	busy                                                              busy
	ran                                                               atomic.Bool
}

// New checks the configuration and starts nothing. An error names a bad URL by
// its place in the list, since it holds a password.
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
		cfg: cfg, close: closeRedis, metrics: m,
		store:      &store{Store: shards, window: cfg.Remember, clock: cfg.now, removed: map[string]time.Time{}, met: map[string]bool{}},
		parked:     notice.New(cfg.Log, slog.LevelError, "task parked"),
		panicked:   notice.New(cfg.Log, slog.LevelError, "handler panicked"),
		refused:    notice.New(cfg.Log, slog.LevelWarn, "delivery rejected, it is no task"),
		unstored:   notice.New(cfg.Log, slog.LevelError, "redis can't be used, to be tried again"),
		refusedOne: notice.New(cfg.Log, slog.LevelError, "redis refuses one task, its delivery waits"),
		unknown: notice.New(cfg.Log, slog.LevelError,
			"no scanner serves the topic under this prefix of this redis, its delivery waits: give the consumer the scanners' redis and prefix"),
		removed: notice.New(cfg.Log, slog.LevelError, "topic was removed, task is not stored again"),
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
		cfg.Policy = Exponential(time.Second, 5*time.Minute, 10)
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

// The limits of AMQP: of a short string, in bytes, and of a prefetch count.
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
	if _, _, err := cfg.Policy.call(1); err != nil {
		return err
	}
	for i, url := range cfg.URLs {
		if _, err := amqp.ParseURI(url); err != nil {
			return fmt.Errorf("Config.URLs[%d] must be amqp://user:password@host:5672/vhost, with reserved characters percent-encoded", i)
		}
	}
	return nil
}
