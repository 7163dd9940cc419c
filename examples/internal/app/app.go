// Package app has the parts that the examples share: flags, a producer and a consumer.
package app

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/producer"
)

// Config configures an App.
type Config struct {
	Redis, Prefix, RabbitMQ string
	// Topic is the topic. A scanner serves it with the queue <topic>.due.
	Topic string
	// Minute is the length of one minute of the example.
	Minute time.Duration
	// Patience limits how long Redis may take to answer. Defaults to go-redis's timeouts.
	Patience time.Duration
	// Out receives the example's output.
	Out io.Writer
}

// App is an application that schedules tasks and handles them.
type App struct {
	Config
	*producer.Client
}

// Open returns an App, which must be closed.
func Open(cfg Config) (*App, error) {
	client, err := producer.New(producer.Config{Options: cfg.options(), Prefix: cfg.Prefix})
	return &App{cfg, client}, err
}

func (cfg Config) options() *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs:       strings.Split(cfg.Redis, ","),
		DialTimeout: cfg.Patience, ReadTimeout: cfg.Patience, WriteTimeout: cfg.Patience, PoolTimeout: cfg.Patience,
	}
}

// In schedules a task that is due in some minutes; 0 is now. It replaces a task with the
// same ID.
func (a *App) In(ctx context.Context, id string, minutes float64, payload string) error {
	when := producer.In(a.Minutes(minutes))
	if minutes == 0 {
		when = producer.Now()
	}
	_, err := a.Schedule(ctx, producer.Request{Topic: a.Topic, ID: id, When: when, Payload: []byte(payload)})
	return err
}

// Minutes returns the length of n minutes of the example.
func (a *App) Minutes(n float64) time.Duration { return time.Duration(n * float64(a.Minute)) }

// Say prints a line of the example's output.
func (a *App) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Out, format+"\n", args...)
}

// Consume handles due tasks until ctx ends.
func (a *App) Consume(ctx context.Context, policy consumer.Policy, handler consumer.Handler) error {
	c, err := consumer.New(consumer.Config{
		URLs: []string{a.RabbitMQ}, Queue: a.Topic + ".due", Prefix: a.Prefix,
		Options: a.options(),
		Handler: handler, Policy: policy, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// Main reads the flags and runs an example until it ends or is interrupted.
func Main(topic string, run func(context.Context, *App) error) {
	cfg := Config{Topic: topic, Out: os.Stdout}
	flag.StringVar(&cfg.Redis, "redis", "127.0.0.1:6379",
		"address of Redis, or several separated by commas for a Redis Cluster")
	flag.StringVar(&cfg.Prefix, "prefix", "duefleet", "prefix of all keys, as in the scanners' configuration")
	flag.StringVar(&cfg.RabbitMQ, "rabbitmq", "amqp://guest:guest@127.0.0.1:5672/", "URL of RabbitMQ")
	flag.DurationVar(&cfg.Minute, "minute", time.Minute, "length of one minute in this example")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	a, err := Open(cfg)
	if err == nil {
		err = run(ctx, a)
		_ = a.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // the signals end with the process
	}
}
