// Package harness holds the parts that all measures share. It starts and stops servers
// and fleets, schedules loads, counts arrivals, and reads figures from the kernel and
// from Redis. It uses duefleet as a user does: through its programs and its public
// library.
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

// Config configures a Bench.
type Config struct {
	// Dir is the folder for the servers' files and logs. Required.
	Dir string
	// Root is the path of the repository, with bin/scanner in it. Required.
	Root string
	// Quick makes all loads a tenth as large, to check that the measures work.
	Quick bool
}

// Bench holds one RabbitMQ node for all runs, because a node takes seconds to start.
// Every run gets its own Redis.
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
	// Dir is the folder for the files of this run.
	Dir string
	// Redis is this run's own server.
	Redis *Redis

	closers []func() error
}

// NewRun starts a Redis for a run. redisArgs are added to the arguments of package
// servers, with which Redis syncs an append-only file each second.
func (b *Bench) NewRun(ctx context.Context, redisArgs ...string) (*Run, error) {
	dir := filepath.Join(b.cfg.Dir, fmt.Sprintf("run-%03d", b.runs.Add(1)))
	server, err := servers.StartRedis(ctx, servers.RedisConfig{Dir: filepath.Join(dir, "redis"), Args: redisArgs})
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	r := &Run{Bench: b, Dir: dir, Redis: &Redis{Redis: server, Client: client}}
	r.Defer(func() error {
		// Redis's files can be gigabytes, and aren't needed again.
		return errors.Join(client.Close(), server.Kill(), os.RemoveAll(filepath.Join(dir, "redis")))
	})
	return r, nil
}

// Defer adds a function that Close calls. Close calls the functions in reverse order.
func (r *Run) Defer(f func() error) { r.closers = append(r.closers, f) }

// Close stops everything that the run started.
func (r *Run) Close() error {
	var errs []error
	for i := len(r.closers) - 1; i >= 0; i-- {
		errs = append(errs, r.closers[i]())
	}
	r.closers = nil
	return errors.Join(errs...)
}

// Size returns n, or a tenth of it with Quick.
func (b *Bench) Size(n int) int {
	if b.cfg.Quick {
		return n / 10
	}
	return n
}

// Span returns d, or with Quick a tenth of it but at least 1 s.
func (b *Bench) Span(d time.Duration) time.Duration {
	if b.cfg.Quick {
		return max(d/10, time.Second)
	}
	return d
}

// Load returns l, or with Quick a load for a tenth of the time and with delays of at most
// 1 s.
func (b *Bench) Load(l Load) Load {
	l.For = b.Span(l.For)
	if b.cfg.Quick {
		l.To = min(l.To, time.Second)
	}
	return l
}

// URL returns the broker's AMQP URL.
func (b *Bench) URL() string { return b.rabbitmq.URL("/") }

// RabbitMQPID returns the broker's process ID.
func (b *Bench) RabbitMQPID() int { return b.rabbitmq.PID() }

// Root returns the path of the repository.
func (b *Bench) Root() string { return b.cfg.Root }

// Poll checks the condition at intervals until it holds. If ctx ends first, it returns
// ctx's error.
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

// Sleep waits for d. If ctx ends first, it returns ctx's error.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
