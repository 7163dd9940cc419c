package inbox_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/duefleet/duefleet/outbox"
	"github.com/duefleet/duefleet/outbox/inbox"
	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestAHandlerThatDiesAfterItsCommit: RabbitMQ gets no ack and delivers again, to another
// consumer.
func TestAHandlerThatDiesAfterItsCommit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		s.deliver()
		text, err := json.Marshal(s.place)
		check.OK(t, err)
		dying := exec.CommandContext(check.Context(t), os.Args[0])
		dying.Env = append(os.Environ(), victimEnv+"="+string(text))
		check.OK(t, dying.Start())
		s.schedule("o-1")
		check.Equal(t, "the end of the consumer", fmt.Sprint(dying.Wait()), "signal: killed")
		check.Equal(t, "effects", s.effects(), 1)
		again := make(chan task.Delivery, 1)
		s.consume(func(ctx context.Context, d task.Delivery) error {
			_, err := s.effect(ctx, s.db, d.Task, "")
			again <- d
			return err
		})
		check.Equal(t, "redelivered", check.Receive(t, "the second delivery", again).Redelivered, true)
		check.Equal(t, "effects", s.effects(), 1)
	})
}

// TestARetryAfterTheCommit: the handler fails after its commit. In the next attempt, which is
// due later, it finds the mark. A task that is scheduled again takes effect again.
func TestARetryAfterTheCommit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		s.deliver()
		attempts := make(chan int, 4)
		s.consume(func(ctx context.Context, d task.Delivery) error {
			_, err := s.effect(ctx, s.db, d.Task, "")
			attempts <- d.Attempt
			if d.Attempt == 1 {
				return errors.Join(err, errTest)
			}
			return err
		})
		for effects := range 2 {
			s.schedule("o-1")
			check.Equal(t, "the attempt", check.Receive(t, "an attempt", attempts), 1)
			check.Equal(t, "the attempt", check.Receive(t, "an attempt", attempts), 2)
			check.Equal(t, "effects", s.effects(), effects+1)
		}
	})
}

// TestEachStepOfAChain takes effect: the payload names the step. The handler fails once after
// the commit of each.
func TestEachStepOfAChain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		s.deliver()
		last := make(chan task.Delivery, 1)
		s.consume(func(ctx context.Context, d task.Delivery) error {
			step := string(d.Payload)
			_, err := s.effect(ctx, s.db, d.Task, step)
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
		check.Receive(t, "the last step", last)
		check.Equal(t, "the steps", dbtest.Value[string](t, s.db,
			map[dbtest.Kind]string{
				dbtest.PostgreSQL: `SELECT string_agg(step, ',' ORDER BY step) FROM effects`,
				dbtest.MariaDB:    `SELECT group_concat(step ORDER BY step) FROM effects`,
			}[s.Kind]), ",x,xx")
	})
}

// TestARowThatIsStoredTwice: a relay stores the task of a row again after it was delivered,
// so it has another scheduled time.
func TestARowThatIsStoredTwice(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		s.deliver()
		handled := make(chan task.Delivery, 1)
		s.consume(func(ctx context.Context, d task.Delivery) error {
			_, err := s.effect(ctx, s.db, d.Task, "")
			handled <- d
			return err
		})
		dbtest.Exec(t, s.db, `CREATE TABLE kept AS SELECT * FROM duefleet_outbox`)
		tx, err := s.db.BeginTx(t.Context(), nil)
		check.OK(t, err)
		writer := outbox.Writer{Dialect: dialect(s.Kind)}
		check.OK(t, writer.Schedule(t.Context(), tx, producer.Request{Topic: orders, ID: "o-1", When: producer.Now()}))
		_, err = tx.ExecContext(t.Context(), `INSERT INTO kept SELECT * FROM duefleet_outbox`)
		check.OK(t, err)
		check.OK(t, tx.Commit())
		relay := outbox.Relay{Dialect: dialect(s.Kind), DB: s.db, Client: s.client, Poll: time.Millisecond,
			Log: slog.New(slog.DiscardHandler)}
		check.Background(t, "the relay", relay.Run)
		first := check.Receive(t, "the delivery", handled)
		if s.Kind == dbtest.MariaDB {
			dbtest.Exec(t, s.db, `DROP TRIGGER duefleet_outbox_lock`)
			dbtest.Exec(t, s.db, `DROP TRIGGER duefleet_outbox_insert`)
		} else {
			dbtest.Exec(t, s.db, `ALTER TABLE duefleet_outbox DISABLE TRIGGER USER`)
		}
		dbtest.Exec(t, s.db, `INSERT INTO duefleet_outbox SELECT * FROM kept`)
		second := check.Receive(t, "the delivery of the repeat", handled)
		check.Equal(t, "another version", second.Scheduled.After(first.Scheduled), true)
		check.Equal(t, "effects", s.effects(), 1)
	})
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
			dbtest.Each(t, func(t *testing.T, kind dbtest.Kind) {
				_, db, box := newInbox(t, kind)
				begin := func() *sql.Tx {
					tx, err := db.BeginTx(t.Context(), nil)
					check.OK(t, err)
					t.Cleanup(func() { _ = tx.Rollback() })
					return tx
				}
				a, b := begin(), begin()
				first, err := box.Once(t.Context(), a, aTask(), "")
				check.OK(t, err)
				check.Equal(t, "the first is the first", first, true)
				second := make(chan bool, 1)
				go func() {
					first, err := box.Once(t.Context(), b, aTask(), "")
					if err != nil {
						t.Error(err)
					}
					second <- first
				}()
				check.Until(t, "a transaction that waits", func() bool {
					return dbtest.Waiting(t, db) == 1
				})
				check.OK(t, end.of(a))
				check.Equal(t, "the second is the first", check.Receive(t, "the second", second), end.second)
			})
		})
	}
}

func aTask() task.Task { return task.Task{Topic: orders, ID: "o-1", Scheduled: time.UnixMilli(1)} }

// TestOtherTasksAreNoRepeats: each differs from the first in one thing. The transaction is
// one of pgx's own.
func TestOtherTasksAreNoRepeats(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, kind dbtest.Kind) {
		url, db, box := newInbox(t, kind)
		mark := func(task task.Task, step string) (first bool) {
			tx, err := db.BeginTx(t.Context(), nil)
			check.OK(t, err)
			first, err = box.Once(t.Context(), tx, task, step)
			check.OK(t, err)
			check.OK(t, tx.Commit())
			return first
		}
		if kind == dbtest.PostgreSQL {
			mark = markPgx(t, url)
		}
		topic, id, version, row, upper := aTask(), aTask(), aTask(), aTask(), aTask()
		topic.Topic, id.ID, version.Scheduled, upper.ID = "other", "o-2", time.UnixMilli(2), "O-1"
		row.Headers = map[string]string{outbox.HeaderRow: "a/1"}
		for name, other := range map[string]struct {
			task task.Task
			step string
		}{"same": {aTask(), ""}, "topic": {topic, ""}, "ID": {id, ""}, "version": {version, ""}, "row": {row, ""},
			"step": {aTask(), "remind"}, "upper case": {upper, ""}} {
			check.Equal(t, name, mark(other.task, other.step), true)
			check.Equal(t, name+", a repeat", mark(other.task, other.step), false)
			check.Equal(t, name+", another repeat", mark(other.task, other.step), false)
		}
	})
}

// markPgx returns a function that marks a task in a transaction of pgx.
func markPgx(t *testing.T, url string) func(t task.Task, step string) (first bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	check.OK(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return func(task task.Task, step string) (first bool) {
		check.OK(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) (err error) {
			first, err = inbox.Once(t.Context(), outbox.Pgx(tx), task, step)
			return err
		}))
		return first
	}
}

// newInbox makes a database with an inbox. The connections to MariaDB have the setting that
// changes the number of rows that an UPDATE affects.
func newInbox(t *testing.T, kind dbtest.Kind) (url string, db *sql.DB, box inbox.Inbox) {
	t.Helper()
	url = dbtest.Database(t, kind)
	if kind == dbtest.MariaDB {
		url += "?clientFoundRows=true"
	}
	db = dbtest.Open(t, url)
	check.OK(t, dialect(kind).Migrate(t.Context(), db))
	return url, db, inbox.Inbox{Dialect: dialect(kind)}
}

// TestForget removes the oldest marks only, at most a given number, and none that is locked.
func TestForget(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, kind dbtest.Kind) {
		_, db, box := newInbox(t, kind)
		for n := range 10 {
			dbtest.Exec(t, db, `INSERT INTO duefleet_inbox (topic, id, version, step, handled_at)
				VALUES ('orders', $1, '1', '', `+map[dbtest.Kind]string{
				dbtest.PostgreSQL: `now() - $2 * interval '1 day')`, dbtest.MariaDB: `UTC_TIMESTAMP() - INTERVAL $2 DAY)`,
			}[kind], strconv.Itoa(n), n)
		}
		forget := func(most int, want int64) {
			t.Helper()
			n, err := box.Forget(t.Context(), db, 5*24*time.Hour, most)
			check.OK(t, err)
			check.Equal(t, "removed marks", n, want)
		}
		forget(2, 2)
		check.Equal(t, "the oldest that is left", dbtest.Value[string](t, db, `SELECT max(id) FROM duefleet_inbox`), "7")
		open, err := db.BeginTx(t.Context(), nil)
		check.OK(t, err)
		defer open.Rollback() //nolint:errcheck // it only ends the transaction
		_, err = open.ExecContext(t.Context(), `UPDATE duefleet_inbox SET handled_at = now()
			WHERE topic = 'orders' AND id = '7' AND version = '1' AND step = ''`)
		check.OK(t, err)
		forget(9, 2)
		check.OK(t, open.Rollback())
		forget(9, 1)
		forget(9, 0)
		check.Equal(t, "marks", dbtest.Value[int](t, db, `SELECT count(*) FROM duefleet_inbox`), 5)
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, kind dbtest.Kind) {
		db, box := dbtest.Open(t, dbtest.Database(t, kind)), inbox.Inbox{Dialect: dialect(kind)}
		tx, err := db.BeginTx(t.Context(), nil)
		check.OK(t, err)
		defer tx.Rollback() //nolint:errcheck // it only ends the transaction
		_, err = box.Once(t.Context(), tx, task.Task{Topic: orders}, "")
		check.Equal(t, "no ID", fmt.Sprint(err), "id: must be 1 to 255 bytes of valid UTF-8; got 0 bytes")
		if kind == dbtest.MariaDB {
			_, err = box.Once(t.Context(), tx, aTask(), strings.Repeat("s", 256))
			check.Equal(t, "a long step", fmt.Sprint(err), "step: must be at most 255 bytes; got 256 bytes")
		}
		_, err = box.Once(t.Context(), tx, aTask(), "")
		check.Equal(t, "no table", errors.Is(err, outbox.ErrNoTable), true)
		_, err = box.Forget(t.Context(), db, time.Hour, 1)
		check.Equal(t, "no table", errors.Is(err, outbox.ErrNoTable), true)
	})
}

// TestTheRightsOfAConsumer are the ones that docs/outbox.md lists.
func TestTheRightsOfAConsumer(t *testing.T) {
	t.Parallel()
	db := dbtest.Open(t, dbtest.Database(t, dbtest.PostgreSQL))
	check.OK(t, outbox.Migrate(t.Context(), db))
	db.SetMaxOpenConns(1)
	dbtest.Exec(t, db, `CREATE ROLE consumer`)
	dbtest.Exec(t, db, `GRANT INSERT ON duefleet_inbox TO consumer`)
	as := func(role string) {
		t.Helper()
		dbtest.Exec(t, db, `SET ROLE `+role)
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
	dbtest.Exec(t, db, `GRANT SELECT, UPDATE, DELETE ON duefleet_inbox TO consumer`)
	as("consumer")
	n, err := inbox.Forget(t.Context(), db, 0, 1)
	check.OK(t, err)
	check.Equal(t, "removed marks", n, 1)
}

// TestTheRightsOfAConsumerOnMariaDB are the ones that docs/outbox.md lists.
func TestTheRightsOfAConsumerOnMariaDB(t *testing.T) {
	t.Parallel()
	url, db, box := newInbox(t, dbtest.MariaDB)
	name := "consumer_" + strings.ToLower(rand.Text())[:16]
	dbtest.Exec(t, db, `CREATE USER `+name)
	dbtest.Exec(t, db, `GRANT INSERT ON duefleet_inbox TO `+name)
	user := dbtest.Open(t, name+strings.TrimPrefix(url, "root"))
	once := func() error {
		tx, err := user.BeginTx(t.Context(), nil)
		check.OK(t, err)
		defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
		if _, err := box.Once(t.Context(), tx, aTask(), ""); err != nil {
			return err
		}
		return tx.Commit()
	}
	check.Equal(t, "Once needs more", errors.Is(once(), outbox.ErrRights), true)
	dbtest.Exec(t, db, `GRANT SELECT, UPDATE ON duefleet_inbox TO `+name)
	check.OK(t, once())
	_, err := box.Forget(t.Context(), user, 0, 1)
	check.Equal(t, "Forget needs more", errors.Is(err, outbox.ErrRights), true)
	dbtest.Exec(t, db, `GRANT DELETE ON duefleet_inbox TO `+name)
	dbtest.Exec(t, db, `UPDATE duefleet_inbox SET handled_at = handled_at - INTERVAL 1 HOUR`)
	n, err := box.Forget(t.Context(), user, 0, 1)
	check.OK(t, err)
	check.Equal(t, "removed marks", n, 1)
}
