package outbox_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/duefleet/duefleet/outbox"
	"github.com/duefleet/duefleet/outbox/inbox"
	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/outbox/pgxlisten"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// The functions before the test are in docs/outbox.md.

func place(ctx context.Context, db *sql.DB, id string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES ($1)`, id); err != nil {
		return err
	}
	err = outbox.Schedule(ctx, tx, producer.Request{Topic: "orders", ID: id, When: producer.In(30 * time.Minute)})
	if err != nil {
		return err
	}
	return tx.Commit()
}

func relay(ctx context.Context, db *sql.DB, client *producer.Client) error {
	relay := outbox.Relay{DB: db, Client: client, Listener: pgxlisten.Listener{DB: db}}
	return relay.Run(ctx) // until ctx ends
}

type service struct{ db *sql.DB }

func (s *service) handle(ctx context.Context, d task.Delivery) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	first, err := inbox.Once(ctx, tx, d.Task, "")
	if err != nil {
		return err
	}
	if first {
		if _, err := tx.ExecContext(ctx, `UPDATE stock SET reserved = reserved - 1 WHERE id = $1`, d.ID); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func forget(ctx context.Context, db *sql.DB) (removed int64, err error) {
	return inbox.Forget(ctx, db, 30*24*time.Hour, 10_000) // older than 30 days, at most 10,000 of them
}

// TestThePage runs what the page shows.
func TestThePage(t *testing.T) {
	t.Parallel()
	redis := fixture.New(t)
	redis.Serve(t, 2)
	db := dbtest.Open(t, dbtest.Database(t, dbtest.PostgreSQL))
	check.OK(t, outbox.Migrate(t.Context(), db))
	dbtest.Exec(t, db, `CREATE TABLE orders (id text PRIMARY KEY)`)
	dbtest.Exec(t, db, `CREATE TABLE stock (id text PRIMARY KEY, reserved int NOT NULL)`)
	dbtest.Exec(t, db, `INSERT INTO stock VALUES ('o-1', 5)`)
	client, err := producer.New(producer.Config{Redis: redis.Client, Prefix: redis.Prefix})
	check.OK(t, err)
	check.Background(t, "the relay", func(ctx context.Context) error { return relay(ctx, db, client) })
	check.OK(t, place(t.Context(), db, "o-1"))
	var stored producer.Stored
	check.Until(t, "the task in Redis", func() bool {
		stored, err = client.Get(t.Context(), "orders", "o-1")
		return err == nil
	})
	s := &service{db}
	for range 2 {
		check.OK(t, s.handle(t.Context(), task.Delivery{Task: stored.Task}))
	}
	check.Equal(t, "reserved", dbtest.Value[int](t, db, "SELECT reserved FROM stock"), 4)
	removed, err := forget(t.Context(), db)
	check.OK(t, err)
	check.Equal(t, "marks removed", removed, 0)
}
