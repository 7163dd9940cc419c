// Command orders is an order service: an order that is unpaid for 30 minutes is cancelled,
// and its buyer gets a mail a day later. The orders are in PostgreSQL.
//
//	POST /orders           {"id":"o-1","mail":"ann@example.org"}
//	POST /orders/o-1/pay
//
// Read service.go first, then http.go, timeout.go and database.go. docs/guide.md explains
// the order of the steps. A scanner must serve the topic orders, to the queue orders.due.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	cfg := Config{}
	addrs := flag.String("redis", "127.0.0.1:6379", "address of Redis, or several of a Redis Cluster with commas between")
	flag.StringVar(&cfg.Prefix, "prefix", "duefleet", "prefix of every key, as the scanners have it")
	flag.StringVar(&cfg.RabbitMQ, "rabbitmq", "amqp://guest:guest@127.0.0.1:5672/", "URL of RabbitMQ")
	flag.StringVar(&cfg.Database, "database", "postgres://127.0.0.1/orders", "URL of PostgreSQL")
	flag.StringVar(&cfg.MailURL, "mail", "http://127.0.0.1:8025/mails", "where mails are posted to")
	flag.StringVar(&cfg.Listen, "listen", "127.0.0.1:8080", "where the service listens")
	flag.DurationVar(&cfg.PayWithin, "pay-within", 30*time.Minute, "time to pay an order")
	flag.DurationVar(&cfg.RemindAfter, "remind-after", 24*time.Hour, "time from the cancellation to the mail")
	flag.Parse()
	cfg.Redis = &redis.UniversalOptions{Addrs: strings.Split(*addrs, ",")}
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	service, err := New(ctx, cfg)
	if err == nil {
		err = service.Run(ctx)
	}
	if err != nil {
		cfg.Log.ErrorContext(ctx, "the order service ended", "error", err)
		os.Exit(1) //nolint:gocritic // the signals end with the process
	}
}
