package inbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/duefleet/duefleet/outbox"
	"github.com/duefleet/duefleet/outbox/inbox"
	"github.com/duefleet/duefleet/outbox/internal/pgtest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/wait"
)

// TestAHandlerThatDiesAfterItsCommit: RabbitMQ gets no ack and delivers again, to another
// consumer.
func TestAHandlerThatDiesAfterItsCommit(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.deliver()
	text, err := json.Marshal(s.place)
	check.OK(t, err)
	dying := exec.CommandContext(wait.Context(t), os.Args[0])
	dying.Env = append(os.Environ(), victimEnv+"="+string(text))
	check.OK(t, dying.Start())
	s.schedule("o-1")
	check.Equal(t, "the end of the consumer", fmt.Sprint(dying.Wait()), "signal: killed")
	check.Equal(t, "effects", s.effects(), 1)
	again := make(chan task.Delivery, 1)
	s.consume(func(ctx context.Context, d task.Delivery) error {
		_, err := effect(ctx, s.db, d.Task, "")
		again <- d
		return err
	})
	check.Equal(t, "redelivered", wait.Receive(t, "the second delivery", again).Redelivered, true)
	check.Equal(t, "effects", s.effects(), 1)
}

// TestARetryAfterTheCommit: the handler fails after its commit. In the next attempt, which is
// due later, it finds the mark. A task that is scheduled again takes effect again.
func TestARetryAfterTheCommit(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.deliver()
	attempts := make(chan int, 4)
	s.consume(func(ctx context.Context, d task.Delivery) error {
		_, err := effect(ctx, s.db, d.Task, "")
		attempts <- d.Attempt
		if d.Attempt == 1 {
			return errors.Join(err, errTest)
		}
		return err
	})
	for effects := range 2 {
		s.schedule("o-1")
		check.Equal(t, "the attempt", wait.Receive(t, "an attempt", attempts), 1)
		check.Equal(t, "the attempt", wait.Receive(t, "an attempt", attempts), 2)
		check.Equal(t, "effects", s.effects(), effects+1)
	}
}

// TestEachStepOfAChain takes effect: the payload names the step. The handler fails once after
// the commit of each.
func TestEachStepOfAChain(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.deliver()
	last := make(chan task.Delivery, 1)
	s.consume(func(ctx context.Context, d task.Delivery) error {
		step := string(d.Payload)
		_, err := effect(ctx, s.db, d.Task, step)
		switch {
		case err != nil || d.Attempt == 1:
			return errors.Join(err, errTest)
		case step == "xx":
			last <- d
			return nil
		}
		return d.NextWhen(producer.Now(), []byte(step+"x"))
	})
	s.schedule("o-1")
	wait.Receive(t, "the last step", last)
	check.Equal(t, "the steps", pgtest.Value[string](t, s.db,
		`SELECT string_agg(step, ',' ORDER BY step) FROM effects`), ",x,xx")
}

// TestARowThatIsStoredTwice: a relay stores the task of a row again after it was delivered,
// so it has another scheduled time.
func TestARowThatIsStoredTwice(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.deliver()
	handled := make(chan task.Delivery, 1)
	s.consume(func(ctx context.Context, d task.Delivery) error {
		_, err := effect(ctx, s.db, d.Task, "")
		handled <- d
		return err
	})
	pgtest.Exec(t, s.db, `CREATE TABLE kept AS SELECT * FROM duefleet_outbox`)
	tx, err := s.db.BeginTx(t.Context(), nil)
	check.OK(t, err)
	check.OK(t, outbox.Schedule(t.Context(), tx, producer.Request{Topic: orders, ID: "o-1", When: producer.Now()}))
	_, err = tx.ExecContext(t.Context(), `INSERT INTO kept SELECT * FROM duefleet_outbox`)
	check.OK(t, err)
	check.OK(t, tx.Commit())
	relay := outbox.Relay{DB: s.db, Client: s.client, Poll: time.Millisecond, Log: slog.New(slog.DiscardHandler)}
	wait.Background(t, "the relay", relay.Run)
	first := wait.Receive(t, "the delivery", handled)
	pgtest.Exec(t, s.db, `ALTER TABLE duefleet_outbox DISABLE TRIGGER USER`)
	pgtest.Exec(t, s.db, `INSERT INTO duefleet_outbox SELECT * FROM kept`)
	second := wait.Receive(t, "the delivery of the repeat", handled)
	check.Equal(t, "another version", second.Scheduled.After(first.Scheduled), true)
	check.Equal(t, "effects", s.effects(), 1)
}

// TestTwoAtOnce: the second transaction waits for the first. If that one commits, the second
// isn't the first; if it is rolled back, its mark is gone and the second is.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		of     func(*sql.Tx) error
		second bool
	}{"commit": {(*sql.Tx).Commit, false}, "rollback": {(*sql.Tx).Rollback, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Open(t, pgtest.Database(t))
			check.OK(t, outbox.Migrate(t.Context(), db))
			begin := func() *sql.Tx {
				tx, err := db.BeginTx(t.Context(), nil)
				check.OK(t, err)
				t.Cleanup(func() { _ = tx.Rollback() })
				return tx
			}
			a, b := begin(), begin()
			first, err := inbox.Once(t.Context(), a, aTask(), "")
			check.OK(t, err)
			check.Equal(t, "the first is the first", first, true)
			second := make(chan bool, 1)
			go func() {
				first, err := inbox.Once(t.Context(), b, aTask(), "")
				if err != nil {
					t.Error(err)
				}
				second <- first
			}()
			wait.For(t, "a transaction that waits", func() bool {
				return pgtest.Value[int](t, db, `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
			})
			check.OK(t, end.of(a))
			check.Equal(t, "the second is the first", wait.Receive(t, "the second", second), end.second)
		})
	}
}

func aTask() task.Task { return task.Task{Topic: orders, ID: "o-1", Scheduled: time.UnixMilli(1)} }

// TestOtherTasksAreNoRepeats: each differs from the first in one thing. The transaction is
// one of pgx's own.
func TestOtherTasksAreNoRepeats(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	db := pgtest.Open(t, url)
	check.OK(t, outbox.Migrate(t.Context(), db))
	conn, err := pgx.Connect(t.Context(), url)
	check.OK(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	topic, id, version, row := aTask(), aTask(), aTask(), aTask()
	topic.Topic, id.ID, version.Scheduled = "other", "o-2", time.UnixMilli(2)
	row.Headers = map[string]string{outbox.HeaderRow: "a/1"}
	mark := func(t *testing.T, task task.Task, step string) (first bool) {
		check.OK(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) (err error) {
			first, err = inbox.Once(t.Context(), outbox.Pgx(tx), task, step)
			return err
		}))
		return first
	}
	for name, other := range map[string]struct {
		task task.Task
		step string
	}{"same": {aTask(), ""}, "topic": {topic, ""}, "ID": {id, ""}, "version": {version, ""}, "row": {row, ""},
		"step": {aTask(), "remind"}} {
		check.Equal(t, name, mark(t, other.task, other.step), true)
		check.Equal(t, name+", a repeat", mark(t, other.task, other.step), false)
	}
}

// TestForget removes the oldest marks only, and at most a given number.
func TestForget(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t, pgtest.Database(t))
	check.OK(t, outbox.Migrate(t.Context(), db))
	pgtest.Exec(t, db, `INSERT INTO duefleet_inbox (topic, id, version, step, handled_at)
		SELECT 'orders', n::text, '1', '', now() - n * interval '1 day' FROM generate_series(0, 9) AS n`)
	forget := func(want int64) {
		t.Helper()
		n, err := inbox.Forget(t.Context(), db, 5*24*time.Hour, 3)
		check.OK(t, err)
		check.Equal(t, "removed marks", n, want)
	}
	forget(3)
	check.Equal(t, "the oldest that is left", pgtest.Value[string](t, db, `SELECT max(id) FROM duefleet_inbox`), "6")
	forget(2)
	forget(0)
	check.Equal(t, "marks", pgtest.Value[int](t, db, `SELECT count(*) FROM duefleet_inbox`), 5)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t, pgtest.Database(t))
	tx, err := db.BeginTx(t.Context(), nil)
	check.OK(t, err)
	defer tx.Rollback() //nolint:errcheck // it only ends the transaction
	_, err = inbox.Once(t.Context(), tx, task.Task{Topic: orders}, "")
	check.Equal(t, "no ID", fmt.Sprint(err), "id: must be 1 to 255 bytes of valid UTF-8; got 0 bytes")
	_, err = inbox.Once(t.Context(), tx, aTask(), "")
	check.Equal(t, "no table", errors.Is(err, outbox.ErrNoTable), true)
	_, err = inbox.Forget(t.Context(), db, time.Hour, 1)
	check.Equal(t, "no table", errors.Is(err, outbox.ErrNoTable), true)
}

// TestTheRightsOfAConsumer are the ones that docs/outbox.md lists.
func TestTheRightsOfAConsumer(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t, pgtest.Database(t))
	check.OK(t, outbox.Migrate(t.Context(), db))
	db.SetMaxOpenConns(1)
	pgtest.Exec(t, db, `CREATE ROLE consumer`)
	pgtest.Exec(t, db, `GRANT INSERT ON duefleet_inbox TO consumer`)
	as := func(role string) {
		t.Helper()
		pgtest.Exec(t, db, `SET ROLE `+role)
	}
	as("consumer")
	tx, err := db.BeginTx(t.Context(), nil)
	check.OK(t, err)
	_, err = inbox.Once(t.Context(), tx, aTask(), "")
	check.OK(t, err)
	check.OK(t, tx.Commit())
	_, err = inbox.Forget(t.Context(), db, 0, 1)
	check.Equal(t, "Forget needs more", errors.Is(err, outbox.ErrRights), true)
	as("NONE")
	pgtest.Exec(t, db, `GRANT SELECT, UPDATE, DELETE ON duefleet_inbox TO consumer`)
	as("consumer")
	n, err := inbox.Forget(t.Context(), db, 0, 1)
	check.OK(t, err)
	check.Equal(t, "removed marks", n, 1)
}
