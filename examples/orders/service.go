package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver pgx
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/producer"
)

const (
	topic = "orders"
	queue = "orders.due"
	// requestTimeout limits a request. It is far below the time to pay, so every
	// transaction has ended when the task of its order is due.
	requestTimeout = 5 * time.Second
	// redisTimeout limits a call to Redis, so that a client with an order doesn't wait
	// longer.
	redisTimeout = time.Second
)

// Config configures a Service.
type Config struct {
	Redis                      *redis.UniversalOptions
	Prefix, RabbitMQ, Database string
	// MailURL is where mails are posted, each with an Idempotency-Key.
	MailURL string
	Listen  string
	// PayWithin is how long an order may stay unpaid.
	PayWithin time.Duration
	// RemindAfter is the time from the cancellation to the mail.
	RemindAfter time.Duration
	// Policy of retries. Defaults to the default of package consumer.
	Policy consumer.Policy
	Log    *slog.Logger
}

// Service accepts orders over HTTP and handles due tasks.
type Service struct {
	cfg   Config
	db    *sql.DB
	tasks *producer.Client
}

// New connects to the database and creates its table. Call Run, or Close if the service
// doesn't run.
func New(ctx context.Context, cfg Config) (*Service, error) {
	tasks, err := producer.New(producer.Config{Options: cfg.Redis, Prefix: cfg.Prefix, Timeout: redisTimeout})
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, tasks: tasks}
	if s.db, err = openDatabase(ctx, cfg.Database); err != nil {
		return nil, errors.Join(err, tasks.Close())
	}
	return s, nil
}

// Close closes the connections to the database and to Redis.
func (s *Service) Close() error { return errors.Join(s.db.Close(), s.tasks.Close()) }

// Handler serves the requests in the package comment.
func (s *Service) Handler() http.Handler {
	a := api{orders: orders{s.db}, tasks: s.tasks, payWithin: s.cfg.PayWithin, log: s.cfg.Log}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", a.place)
	mux.HandleFunc("POST /orders/{id}/pay", a.pay)
	return http.TimeoutHandler(mux, requestTimeout, `{"error":"it took too long: repeat the request"}`)
}

// consume handles due tasks until ctx ends.
func (s *Service) consume(ctx context.Context) error {
	due := timeouts{orders: orders{s.db}, mails: mailer{s.cfg.MailURL}, remindAfter: s.cfg.RemindAfter}
	c, err := consumer.New(consumer.Config{
		URLs: []string{s.cfg.RabbitMQ}, Queue: queue, Options: s.cfg.Redis, Prefix: s.cfg.Prefix,
		Handler: due.handle, Policy: s.cfg.Policy, Log: s.cfg.Log,
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// Run serves requests and consumes until ctx ends or one of the two fails, then closes
// the service.
func (s *Service) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: requestTimeout}
	consumed, served := make(chan error, 1), make(chan error, 1)
	go func() { consumed <- s.consume(ctx); stop() }()
	go func() { served <- server.Serve(listener); stop() }()
	<-ctx.Done()
	last, end := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer end()
	err = server.Shutdown(last) // running requests finish, and so do running handlers
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, <-consumed, s.Close())
}
