package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/duefleet/duefleet/outbox"
	"github.com/duefleet/duefleet/outbox/inbox"
	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// The functions before the test are in docs/outbox.md.

func relayMariaDB(ctx context.Context, db *sql.DB, client *producer.Client) error {
	if err := outbox.MariaDB.Migrate(ctx, db); err != nil {
		return err
	}
	relay := outbox.Relay{Dialect: outbox.MariaDB, DB: db, Client: client}
	return relay.Run(ctx) // until ctx ends
}

func scheduleMariaDB(ctx context.Context, tx *sql.Tx, r producer.Request) error {
	return outbox.Writer{Dialect: outbox.MariaDB}.Schedule(ctx, tx, r)
}

func onceMariaDB(ctx context.Context, tx *sql.Tx, t task.Task) (first bool, err error) {
	return inbox.Inbox{Dialect: outbox.MariaDB}.Once(ctx, tx, t, "")
}

// TestThePageOnMariaDB runs what the page shows.
func TestThePageOnMariaDB(t *testing.T) {
	t.Parallel()
	redis := fixture.New(t)
	redis.Serve(t, 2)
	db := dbtest.Open(t, dbtest.Database(t, dbtest.MariaDB))
	client, err := producer.New(producer.Config{Redis: redis.Client, Prefix: redis.Prefix})
	check.OK(t, err)
	check.Background(t, "the relay", func(ctx context.Context) error { return relayMariaDB(ctx, db, client) })
	check.Until(t, "the tables", func() bool { return outbox.MariaDB.Check(t.Context(), db) == nil })
	tx, err := db.BeginTx(t.Context(), nil)
	check.OK(t, err)
	check.OK(t, scheduleMariaDB(t.Context(), tx, producer.Request{Topic: "orders", ID: "o-1", When: producer.Now()}))
	first, err := onceMariaDB(t.Context(), tx, task.Task{Topic: "orders", ID: "o-1"})
	check.OK(t, errors.Join(err, tx.Commit()))
	check.Equal(t, "the first", first, true)
	check.Until(t, "the task", func() bool {
		_, err := client.Get(t.Context(), "orders", "o-1")
		return err == nil
	})
}
