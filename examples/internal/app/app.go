// Package app is what the examples share: flags, and the two ends of a topic.
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

// Config says where the servers are.
type Config struct {
	Redis, Prefix, RabbitMQ string
	// Topic is served by a scanner, to the queue <topic>.due.
	Topic string
	// Minute is how long a minute of the story lasts.
	Minute time.Duration
	// Patience is how long Redis may take to answer. Defaults to the client's own.
	Patience time.Duration
	// Out is told the story.
	Out io.Writer
}

// App is an application that schedules tasks and handles them.
type App struct {
	Config
	*producer.Client
}

// Open puts an application together. Close it.
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

// In schedules a task some minutes from now, replacing the one of that ID.
func (a *App) In(ctx context.Context, id string, minutes float64, payload string) error {
	_, err := a.Schedule(ctx, producer.Request{
		Topic: a.Topic, ID: id, When: producer.In(a.Minutes(minutes)), Payload: []byte(payload),
	})
	return err
}

// Minutes of the story.
func (a *App) Minutes(n float64) time.Duration { return time.Duration(n * float64(a.Minute)) }

// Say tells the story on.
func (a *App) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Out, format+"\n", args...)
}

// Consume handles what is due until ctx ends.
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

// Main runs an example by its flags until it is over or interrupted.
func Main(topic string, run func(context.Context, *App) error) {
	cfg := Config{Topic: topic, Out: os.Stdout}
	flag.StringVar(&cfg.Redis, "redis", "127.0.0.1:6379", "address of Redis, or several of a Redis Cluster with commas between")
	flag.StringVar(&cfg.Prefix, "prefix", "duefleet", "prefix of every key, as the scanners have it")
	flag.StringVar(&cfg.RabbitMQ, "rabbitmq", "amqp://guest:guest@127.0.0.1:5672/", "URL of RabbitMQ")
	flag.DurationVar(&cfg.Minute, "minute", time.Minute, "how long a minute lasts")
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
