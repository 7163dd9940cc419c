package inbox_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/outbox"
	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/outbox/pgxlisten"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/fleet/member"
)

// roleEnv is the environment variable that makes a process of this test binary a part of the
// ledger's fleet. Its value is a role.
const roleEnv = "DUEFLEET_TEST_ROLE"

// role says what such a process does.
type role struct {
	Name   string
	Place  place
	Config string // of the scanner
	Notes  string // the file of the application, or of the consumer
	Rate   int    // of the application: commits a second
}

// begun is the first line of a role in its log: SIGTERM ends it with 0 from here on.
const begun = "the role begins"

// writers is the number of goroutines of the application.
const writers = 16

// perform plays a role until SIGTERM, and returns the exit code.
func perform(text string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Fprintln(os.Stderr, begun)
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = r.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (r role) run(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if r.Name == "scanner" {
		return member.RunWith(ctx, r.Config, []string{"DUEFLEET_ADMIN_LISTEN=127.0.0.1:0"}, log,
			func(redis.UniversalClient) {})
	}
	db, err := sql.Open(string(r.Place.Kind), r.Place.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	if r.Name == "relay" {
		rdb := redis.NewUniversalClient(fixture.Options(r.Place.Redis))
		defer rdb.Close()
		client, err := producer.New(producer.Config{Redis: rdb, Prefix: r.Place.Prefix})
		if err != nil {
			return err
		}
		relay := outbox.Relay{Dialect: dialect(r.Place.Kind), DB: db, Client: client, Log: log}
		if r.Place.Kind == dbtest.PostgreSQL {
			relay.Listener = pgxlisten.Listener{DB: db}
		}
		return relay.Run(ctx)
	}
	notes, err := os.OpenFile(r.Notes, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer notes.Close()
	if r.Name == "consumer" {
		return r.consume(ctx, db, notes, log)
	}
	r.placeOrders(ctx, db, notes)
	return nil
}

// note writes a line. The kernel has it when write returns, so it outlasts this process.
func note(notes io.Writer, word, id string) {
	if _, err := notes.Write([]byte(word + " " + id + "\n")); err != nil {
		panic(err)
	}
}

// placeOrders commits orders and schedules a task for each in its transaction. It rolls one
// in ten back.
func (r role) placeOrders(ctx context.Context, db *sql.DB, notes io.Writer) {
	db.SetMaxIdleConns(writers)
	var (
		run     = rand.Text()
		numbers atomic.Int64
		all     sync.WaitGroup
		tick    = time.NewTicker(time.Second / time.Duration(r.Rate))
	)
	defer tick.Stop()
	for range writers {
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				n := numbers.Add(1)
				id := fmt.Sprint(run, "-", n)
				end, word := (*sql.Tx).Commit, committed
				if n%10 == 0 {
					end, word = (*sql.Tx).Rollback, undone
				}
				if r.Place.order(context.WithoutCancel(ctx), db, id, end) == nil {
					note(notes, word, id)
				}
			}
		})
	}
	all.Wait()
}

func (p place) order(ctx context.Context, db *sql.DB, id string, end func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	if _, err := tx.ExecContext(ctx, dbtest.SQL(db, `INSERT INTO orders (id) VALUES ($1)`), id); err != nil {
		return err
	}
	r := producer.Request{Topic: orders, ID: id, When: producer.In(100 * time.Millisecond)}
	if err := (outbox.Writer{Dialect: dialect(p.Kind)}).Schedule(ctx, tx, r); err != nil {
		return err
	}
	return end(tx)
}

// consume notes each delivery whose effect was there already.
func (r role) consume(ctx context.Context, db *sql.DB, notes io.Writer, log *slog.Logger) error {
	c, err := r.Place.consumer(func(ctx context.Context, d task.Delivery) error {
		first, err := r.Place.effect(ctx, db, d.Task, "")
		if err == nil && !first {
			note(notes, repeated, d.ID)
		}
		return err
	}, func(c *consumer.Config) {
		c.Concurrency, c.Log = writers, log
		c.Policy = consumer.Exponential(50*time.Millisecond, time.Second, 1000)
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}
