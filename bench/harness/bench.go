// Package harness is what all measures share: servers, fleets, load, arrivals
// and the figures that the kernel and Redis keep about them. It starts every
// server it measures and ends it, and knows duefleet by its programs and its
// public library alone.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/servers"
)

// Config of a Bench.
type Config struct {
	// Dir takes the servers' files and logs. Required.
	Dir string
	// Root is the repository, with bin/scanner in it. Required.
	Root string
	// Quick makes everything a tenth as large: to see that it works.
	Quick bool
}

// Bench is what lives as long as the program: one RabbitMQ node, whose start
// takes seconds. Every run gets a Redis of its own.
type Bench struct {
	cfg      Config
	rabbitmq *servers.RabbitMQ
	runs     atomic.Int64
}

// Start starts RabbitMQ.
func Start(ctx context.Context, cfg Config) (*Bench, error) {
	node, err := servers.StartRabbitMQ(ctx, servers.RabbitMQConfig{Dir: filepath.Join(cfg.Dir, "rabbitmq")})
	if err != nil {
		return nil, err
	}
	return &Bench{cfg: cfg, rabbitmq: node}, nil
}

// Stop ends RabbitMQ.
func (b *Bench) Stop() error { return b.rabbitmq.Kill() }

// Run is one run of one measure, with an empty Redis. Close it.
type Run struct {
	*Bench
	// Dir takes the files of this run.
	Dir string
	// Redis is this run's own server.
	Redis *Redis

	closers []func() error
}

// NewRun starts a Redis with these arguments beside those of package servers, for which an
// append-only file is synced each second.
func (b *Bench) NewRun(ctx context.Context, redisArgs ...string) (*Run, error) {
	dir := filepath.Join(b.cfg.Dir, fmt.Sprintf("run-%03d", b.runs.Add(1)))
	server, err := servers.StartRedis(ctx, servers.RedisConfig{Dir: filepath.Join(dir, "redis"), Args: redisArgs})
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	r := &Run{Bench: b, Dir: dir, Redis: &Redis{Redis: server, Client: client}}
	r.Defer(func() error {
		// What Redis wrote can be gigabytes, and nobody looks at it again.
		return errors.Join(client.Close(), server.Kill(), os.RemoveAll(filepath.Join(dir, "redis")))
	})
	return r, nil
}

// Defer has Close call f, the last one first.
func (r *Run) Defer(f func() error) { r.closers = append(r.closers, f) }

// Close ends what the run started.
func (r *Run) Close() error {
	var errs []error
	for i := len(r.closers) - 1; i >= 0; i-- {
		errs = append(errs, r.closers[i]())
	}
	r.closers = nil
	return errors.Join(errs...)
}

// Size is n, or a tenth of it with Quick.
func (b *Bench) Size(n int) int {
	if b.cfg.Quick {
		return n / 10
	}
	return n
}

// Span is d, or a tenth of it with Quick but at least 1 s.
func (b *Bench) Span(d time.Duration) time.Duration {
	if b.cfg.Quick {
		return max(d/10, time.Second)
	}
	return d
}

// Load is l, or with Quick a load of a tenth of the time and delays below 1 s.
func (b *Bench) Load(l Load) Load {
	l.For = b.Span(l.For)
	if b.cfg.Quick {
		l.To = min(l.To, time.Second)
	}
	return l
}

// URL of the broker.
func (b *Bench) URL() string { return b.rabbitmq.URL("/") }

// RabbitMQPID is the broker's process ID.
func (b *Bench) RabbitMQPID() int { return b.rabbitmq.PID() }

// Root is the repository.
func (b *Bench) Root() string { return b.cfg.Root }

// Poll asks until the condition holds, every interval. It is ctx's error if
// that ends first.
func Poll(ctx context.Context, every time.Duration, condition func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		done, err := condition()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Sleep waits for d: the length of a measurement, or until a due time.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
