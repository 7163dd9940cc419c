// Package producer schedules tasks that are due later, and cancels, moves and
// reads them by their ID. What is due is delivered by the fleet of scanners to
// RabbitMQ; this package talks to Redis alone.
//
// Once Schedule returned without an error the task is delivered at least once,
// never before its due time by Redis's clock, as long as Redis keeps what it
// acknowledged. An error that is task.ErrUnavailable says that surely nothing was
// done. One that is task.ErrUncertain says that Redis may have done it, or may within 3 s:
// call again with the same ID, which replaces what may be there.
//
// How long a call may take is bounded by its ctx, and by Config.Timeout. docs/guide.md is
// for developers of applications.
package producer

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Config of a Client.
type Config struct {
	// Redis is the caller's client, which Close leaves open. Calls end with their
	// context whether or not it has ContextTimeoutEnabled; with it they cost less.
	// Either it or Options must be given.
	Redis redis.UniversalClient
	// Options make a client of our own, which Close closes. It connects with the user,
	// the password and the TLSConfig that they have, unless CredentialsProviderContext
	// and a Dialer of theirs read them again for each connection.
	Options *redis.UniversalOptions
	// Prefix of every key; the scanners' redis.prefix. Defaults to "duefleet".
	Prefix string
	// MaxPayload is the largest payload taken, in bytes, at most 16 MiB. Consumers
	// have a limit of their own, consumer.Config.MaxPayload: raise that first, since
	// they park what is larger. Defaults to 256 KiB.
	MaxPayload int
	// MinReplicas of Redis must have what a call stored, moved or removed before it
	// returns, at most 10; it waits for them for a second (WAIT), which must be less
	// than the client's ReadTimeout. With too few it returns task.ErrReplicas,
	// although the master may have stored it: call again. Redis must be one server,
	// sentinels or a cluster. Defaults to 0.
	MinReplicas int
	// Timeout bounds each call whose ctx ends later or never, IDs excepted, and each page of
	// List. Defaults to 0:
	// none. Then a call whose ctx has no end takes as long as the options of the Redis
	// client allow for its connections and its repeats: with go-redis's own some 5 s
	// while connections are refused, half a minute while Redis stands still, and minutes
	// while packets are lost. Calls that wait for somebody, as an HTTP request, want a
	// second or two.
	Timeout time.Duration
	// Registerer takes the metrics, duefleet_producer_*. Clients may share one.
	// Defaults to none: then nothing is measured.
	Registerer prometheus.Registerer
}

// Client schedules tasks. It is safe for concurrent use.
type Client struct {
	store      *shard.Store
	close      func() error
	maxPayload int
	timeout    time.Duration // 0: none
	metrics    *metrics      // nil: none
	// endsWithContext: Redis's answers are awaited no longer than a call's context lasts.
	endsWithContext bool
}

// New returns a client; it connects when it is first used.
func New(cfg Config) (*Client, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "duefleet"
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = task.DefaultMaxPayload
	}
	if cfg.MaxPayload < 0 || cfg.MaxPayload > task.MaxMaxPayload {
		return nil, fmt.Errorf("producer: Config.MaxPayload must be 1 to %d bytes; got %d", task.MaxMaxPayload, cfg.MaxPayload)
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("producer: Config.Timeout must not be negative; got %s", cfg.Timeout)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	store, closeRedis, err := shard.Open(cfg.Redis, cfg.Options, cfg.Prefix, cfg.MinReplicas)
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	return &Client{
		store: store, close: closeRedis, maxPayload: cfg.MaxPayload, timeout: cfg.Timeout, metrics: m,
		endsWithContext: endsWithContext(cfg.Redis),
	}, nil
}

// Close closes the client's own connections. A Config.Redis stays open.
func (c *Client) Close() error { return c.close() }

// When is a due time: Now, In a while from now, or At an instant. The zero value is none,
// and breaks a rule.
type When = task.When

// Now is due at once.
func Now() When { return task.Now() }

// In is d after now by the clock of the Redis that stores the task, cut to the
// millisecond. 0 and a negative d are due now.
func In(d time.Duration) When { return task.In(d) }

// At is the instant t as it is, cut to the millisecond. The past is due now, but for the
// zero time.Time and for Unix seconds given to time.UnixMilli, which break a rule. At
// most 100 years ahead.
func At(t time.Time) When { return task.At(t) }

// Request is one task to schedule.
type Request struct {
	// Topic it belongs to: 1 to 64 of A-Z a-z 0-9 . _ -, served by the fleet.
	Topic string
	// ID names it within the topic: 1 to 255 bytes of valid UTF-8.
	ID string
	// When it is due: Now, In or At. Required.
	When When
	// Payload is delivered byte for byte, at most Config.MaxPayload.
	Payload []byte
	// ContentType of the payload. Defaults to application/octet-stream.
	ContentType string
	// Headers of the message: at most 32, keys of up to 128 bytes that don't
	// begin with x-duefleet-, 64 KiB together.
	//
	// Schedule and ScheduleMany add traceparent and tracestate (W3C Trace Context) where
	// their ctx carries a trace and the headers have neither of the two: an empty
	// traceparent of your own keeps a task out of the trace. What doesn't fit into the
	// limits is left out.
	Headers map[string]string
	// Options of the message: a routing key of its own, priority, expiration,
	// correlation ID, reply-to.
	Options task.Options
	// IfAbsent refuses with task.ErrExists where a task of this ID is stored,
	// in place of replacing it.
	IfAbsent bool
}

// Check holds the request to the rules of input, with the largest payload in bytes and
// the due time seen from now, and returns a *task.RuleError for the first that is broken.
// Schedule does so too, by Redis's clock: Check is for those who want to know before.
func (r *Request) Check(maxPayload int, now time.Time) error {
	return first(
		task.CheckTopic(r.Topic),
		task.CheckID(r.ID),
		task.CheckPayload(r.Payload, maxPayload),
		task.CheckContentType(r.ContentType),
		task.CheckHeaders(r.Headers),
		task.CheckOptions(r.Options),
		task.CheckWhen(r.When, now),
	)
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// now is Redis's clock, for checks.
func (c *Client) now(ctx context.Context) (time.Time, error) {
	ms, err := reads(ctx, c, func() (int64, error) { return c.store.Now(ctx) })
	return time.UnixMilli(ms), shard.Unasked(err)
}

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
