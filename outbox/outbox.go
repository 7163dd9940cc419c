// Package outbox schedules tasks in the transaction of a database. Schedule, Cancel and
// Reschedule insert one row each; the task changes if the transaction commits, and only
// then. A Relay brings committed rows to Redis. See docs/outbox.md.
//
// The rows of one ID take effect in the order of their commits. The database makes sure of
// it: a transaction that names an ID waits for an earlier one with the same ID. Two
// transactions that name two IDs in opposite orders can deadlock, as with rows of any table;
// the database ends one of them.
//
// The package needs PostgreSQL 13 or later, or MariaDB 10.6 or later, and no particular driver.
// The functions use PostgreSQL. For MariaDB, set the field Dialect of Writer and Relay, and call
// MariaDB.Migrate and MariaDB.Check.
package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// HeaderRow is a header of each task that came through an outbox: the outbox and the
// number of the row. All deliveries of a row have the same value, also if a relay stored the
// task a second time. So it is an idempotency key for handlers. A task has at most 31
// headers of its own, therefore.
const HeaderRow = "duefleet-outbox"

// longestRow is as long as any value of HeaderRow: a UUID, a slash and 19 digits.
const longestRow = "00000000-0000-0000-0000-000000000000/9223372036854775807"

// Tx is the caller's transaction, such as a *sql.Tx. Pgx makes one of a pgx.Tx.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	// Rollback is never called. It keeps a *sql.DB from being passed by mistake, which
	// would insert the row outside of the transaction.
	Rollback() error
}

// Pgx returns a Tx for a pgx.Tx, version 4 or later. This package doesn't import pgx.
func Pgx[R interface{ RowsAffected() int64 }](tx interface {
	Exec(ctx context.Context, query string, args ...any) (R, error)
	Rollback(ctx context.Context) error
}) Tx {
	return pgxTx[R]{tx.Exec}
}

type pgxTx[R interface{ RowsAffected() int64 }] struct {
	exec func(ctx context.Context, query string, args ...any) (R, error)
}

// ExecContext executes a statement.
func (t pgxTx[R]) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

// Rollback is never called.
func (pgxTx[R]) Rollback() error { panic("outbox: Rollback was called") }

// Writer writes rows. The zero value is ready to use; the functions Schedule, Cancel and
// Reschedule use it. It is safe for concurrent use.
type Writer struct {
	// Dialect is the kind of database. Defaults to PostgreSQL.
	Dialect Dialect
	// MaxPayload is the largest payload in bytes. The relay's producer.Client needs
	// the same limit, or a larger one. Defaults to 256 KiB.
	MaxPayload int
}

// Schedule schedules a task when tx commits, as producer.Client.Schedule does. A relative due
// time counts from the INSERT, by the clock of the database alone: the relay subtracts how
// long the row waited. A due time at an instant counts by Redis's clock.
//
// With IfAbsent or IfPresent, the relay drops the row if the condition isn't met. If ctx
// carries a trace, the task continues it.
//
// Errors, after which the transaction must be rolled back unless it is the first:
//   - *task.RuleError: the input breaks a rule; nothing was sent to the database.
//   - ErrNoTable, ErrOlderSchema, ErrRights.
//   - Errors of the database itself, a deadlock included.
func Schedule(ctx context.Context, tx Tx, r producer.Request) error {
	return Writer{}.Schedule(ctx, tx, r)
}

// Cancel removes a task when tx commits, as producer.Client.Cancel does. If no such task is
// stored then, the row has no effect. It returns the errors of Schedule.
func Cancel(ctx context.Context, tx Tx, topic, id string) error {
	return Writer{}.Cancel(ctx, tx, topic, id)
}

// Reschedule gives a stored task a new due time when tx commits, as producer.Client.Reschedule
// does. If no such task is stored then, the row has no effect. when counts as in Schedule.
// It returns the errors of Schedule.
func Reschedule(ctx context.Context, tx Tx, topic, id string, when producer.When) error {
	return Writer{}.Reschedule(ctx, tx, topic, id, when)
}

// Schedule is like the function Schedule, with the limits of w.
func (w Writer) Schedule(ctx context.Context, tx Tx, r producer.Request) error {
	r = r.WithTrace(ctx)
	if err := cmp.Or(marked(r, longestRow).Check(cmp.Or(w.MaxPayload, task.DefaultMaxPayload), time.Now()),
		w.checkNULs(r)); err != nil {
		return err
	}
	return w.insert(ctx, tx, "schedule", r)
}

// Cancel is like the function Cancel.
func (w Writer) Cancel(ctx context.Context, tx Tx, topic, id string) error {
	r := producer.Request{Topic: topic, ID: id}
	if err := cmp.Or(task.CheckTopic(topic), task.CheckID(id), w.checkNULs(r)); err != nil {
		return err
	}
	return w.insert(ctx, tx, "cancel", r)
}

// Reschedule is like the function Reschedule.
func (w Writer) Reschedule(ctx context.Context, tx Tx, topic, id string, when producer.When) error {
	r := producer.Request{Topic: topic, ID: id, When: when}
	if err := cmp.Or(r.Check(0, time.Now()), w.checkNULs(r)); err != nil {
		return err
	}
	return w.insert(ctx, tx, "reschedule", r)
}

// marked returns the request with HeaderRow.
func marked(r producer.Request, row string) *producer.Request {
	headers := make(map[string]string, len(r.Headers)+1)
	for k, v := range r.Headers {
		headers[k] = v
	}
	headers[HeaderRow] = row
	r.Headers = headers
	return &r
}

// checkNULs checks the one rule that PostgreSQL adds.
func (w Writer) checkNULs(r producer.Request) error {
	if w.Dialect != PostgreSQL {
		return nil
	}
	return cmp.Or(
		checkNUL("id", r.ID), checkNUL("content_type", r.ContentType), checkNUL("routing_key", r.Options.RoutingKey),
		checkNUL("correlation_id", r.Options.CorrelationID), checkNUL("reply_to", r.Options.ReplyTo),
	)
}

func checkNUL(field, text string) error {
	if i := strings.IndexByte(text, 0); i >= 0 {
		return &task.RuleError{Field: field, Rule: "must not contain the byte 0, which the database can't store as text",
			Got: fmt.Sprintf("it at byte %d", i)}
	}
	return nil
}

func (w Writer) insert(ctx context.Context, tx Tx, action string, r producer.Request) error {
	var due, delay, headers any
	if wait, relative := r.When.Wait(); relative {
		delay = max(wait.Milliseconds(), 0)
	} else if at, absolute := r.When.Instant(); absolute {
		due = at.UnixMilli()
	}
	if len(r.Headers) > 0 {
		text, err := json.Marshal(r.Headers)
		if err != nil {
			return fmt.Errorf("encode the headers: %w", err)
		}
		headers = string(text)
	}
	o := r.Options
	_, err := tx.ExecContext(ctx, w.Dialect.statements().insertRow,
		action, r.Topic, r.ID, due, delay, r.IfAbsent, r.IfPresent, r.Payload,
		orNull(r.ContentType), headers, orNull(o.RoutingKey), orNull(int64(o.Priority)),
		orNull(o.Expiration.Milliseconds()), orNull(o.CorrelationID), orNull(o.ReplyTo))
	return wrap(fmt.Sprintf("insert into the outbox: %s topic %s, ID %q", action, r.Topic, r.ID), err)
}

// orNull returns NULL for a zero value.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
