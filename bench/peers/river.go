package peers

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/duefleet/duefleet/bench/harness"
)

func riverPeer() Peer {
	return Peer{
		Name: "River", members: 3,
		missing: postgresMissing, store: startRiverStore, connect: newRiverClient, work: riverWorking,
	}
}

// riverTask is a task as River stores it, in JSON.
type riverTask struct {
	ID      string `json:"id"`
	Payload string `json:"payload"`
}

// Kind returns the name that River uses to find the worker.
func (riverTask) Kind() string { return "orders" }

// startRiverStore starts PostgreSQL with River's tables.
func startRiverStore(ctx context.Context, r *harness.Run) (store, error) {
	s, err := startPostgres(ctx, r)
	if err != nil {
		return s, err
	}
	if err := migrate(ctx, s.addr); err != nil {
		_ = s.stop() // the first error counts
		return store{}, fmt.Errorf("make the tables of River: %w", err)
	}
	s.memory = func(ctx context.Context) (n int64, err error) {
		conn, err := pgx.Connect(ctx, s.addr)
		if err != nil {
			return 0, err
		}
		defer conn.Close(ctx)
		err = conn.QueryRow(ctx, "SELECT pg_total_relation_size('river_job')").Scan(&n)
		return n, err
	}
	return s, nil
}

func migrate(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet()})
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// quiet returns a logger that keeps River off stdout, where a member prints "ready".
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type riverClient struct {
	*river.Client[pgx.Tx]
	pool *pgxpool.Pool
}

func newRiverClient(ctx context.Context, p place) (client, error) {
	pool, err := pgxpool.New(ctx, p.store)
	if err != nil {
		return nil, err
	}
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet()})
	return riverClient{c, pool}, err
}

// Schedule inserts tasks with one InsertManyFast.
func (c riverClient) Schedule(ctx context.Context, tasks []harness.Task) error {
	params := make([]river.InsertManyParams, len(tasks))
	for i, t := range tasks {
		params[i] = river.InsertManyParams{
			Args: riverTask{t.ID(), string(t.Payload)}, InsertOpts: &river.InsertOpts{ScheduledAt: t.Due},
		}
	}
	_, err := c.InsertManyFast(ctx, params)
	return err
}

// Close closes the connections.
func (c riverClient) Close() error {
	c.pool.Close()
	return nil
}

// riverWorker publishes tasks.
type riverWorker struct {
	river.WorkerDefaults[riverTask]
	publisher *harness.Publisher
}

// Work returns after the confirm.
func (w riverWorker) Work(ctx context.Context, job *river.Job[riverTask]) error {
	return w.publisher.Publish(ctx, harness.Message(job.Args.ID, []byte(job.Args.Payload)))
}

func riverWorking(ctx context.Context, p place, ready func()) error {
	publisher, err := harness.NewPublisher(p.broker, p.exchange)
	if err != nil {
		return err
	}
	defer publisher.Close()
	pool, err := pgxpool.New(ctx, p.store)
	if err != nil {
		return err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, riverWorker{publisher: publisher})
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Logger: quiet(), Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: handlers}},
	})
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return fmt.Errorf("start River: %w", err)
	}
	ready()
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return c.Stop(stopping)
}
