// Package producer schedules tasks that are due later, and cancels, reschedules and reads
// them by their ID. It connects to Redis only. The scanners publish due tasks to
// RabbitMQ.
//
// A task whose Schedule returned without error is delivered at least once, as long as
// Redis keeps its acknowledged writes. It is never delivered before its due time by
// Redis's clock.
//
// After task.ErrUnavailable, the call has done nothing. After task.ErrUncertain, Redis may
// have executed the call, or may execute it within 3 s. In both cases call again with the
// same ID: a repeated Schedule replaces the task if it is stored.
//
// The ctx and Config.Timeout limit how long a call takes. See docs/guide.md for how to
// use this package in an application.
package producer

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Config configures a Client.
type Config struct {
	// Redis is the caller's client; Close leaves it open. Calls end with their context in
	// any case; they cost less if the client has ContextTimeoutEnabled. For a Redis Cluster
	// it must be a *redis.ClusterClient. Either Redis or Options must be given.
	Redis redis.UniversalClient
	// Options are for a client that New makes and Close closes. It uses their user,
	// password and TLSConfig. CredentialsProviderContext and Dialer can read these again
	// for each connection. One address may name a server, or a node of a Redis Cluster.
	Options *redis.UniversalOptions
	// Prefix of every key: redis.prefix of the scanners. Defaults to "duefleet".
	Prefix string
	// MaxPayload is the largest payload, in bytes, at most 16 MiB. Consumers park a task
	// whose payload is larger than their own limit, consumer.Config.MaxPayload: raise
	// that first. Defaults to 256 KiB.
	MaxPayload int
	// MinReplicas is the number of Redis replicas that must have a change before the call
	// returns, at most 10. The call waits for them for a second (WAIT), so the client's
	// ReadTimeout must be longer. If too few replicas have the change, the call returns
	// task.ErrReplicas, although the master may have stored it: call again. Redis must be
	// one server, sentinels or a cluster. Defaults to 0.
	MinReplicas int
	// Timeout limits each call, also if its ctx ends later or never. It limits each page
	// of List. It doesn't apply to IDs and to changes of a Matching. Defaults to 0: no
	// limit.
	//
	// Without it, the options of the Redis client limit a call whose ctx has no end. With
	// the defaults of go-redis that is about 5 s while connections are refused. It is
	// half a minute while Redis hangs, and minutes while packets are lost. If somebody
	// waits for the call, as in an HTTP request, set a second or two.
	Timeout time.Duration
	// Registerer registers the metrics, duefleet_producer_*. Clients may share one.
	// Defaults to nil: no metrics.
	Registerer prometheus.Registerer
}

// Client schedules tasks. It is safe for concurrent use.
type Client struct {
	store      *shard.Store
	routers    *router.Routers
	close      func() error
	maxPayload int
	timeout    time.Duration // 0: none
	metrics    *metrics      // nil: none
	// endsWithContext: a call waits for Redis no longer than its context lasts.
	endsWithContext bool
}

// New returns a client. It connects at the first call.
func New(cfg Config) (*Client, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "duefleet"
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = task.DefaultMaxPayload
	}
	if cfg.MaxPayload < 0 || cfg.MaxPayload > task.MaxMaxPayload {
		return nil, fmt.Errorf("producer: Config.MaxPayload must be 1 to %d bytes; got %d", task.MaxMaxPayload,
			cfg.MaxPayload)
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
		store: store, routers: router.New(store), close: closeRedis, maxPayload: cfg.MaxPayload,
		timeout: cfg.Timeout, metrics: m,
		endsWithContext: endsWithContext(cfg.Redis),
	}, nil
}

// Close closes the client's own connections. Config.Redis stays open.
func (c *Client) Close() error { return c.close() }
