// Package inbox lets a handler of package consumer take effect once, although a task is
// delivered at least once. Once inserts a mark in the transaction of the effect. A repeat
// finds the mark and does nothing. See docs/outbox.md.
package inbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/duefleet/duefleet/outbox"
	"github.com/duefleet/duefleet/outbox/internal/dberr"
	"github.com/duefleet/duefleet/task"
)

// The statements for PostgreSQL. Several programs may forget at once.
const (
	oncePostgres = `INSERT INTO duefleet_inbox (topic, id, version, step) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`

	forgetPostgres = `DELETE FROM duefleet_inbox WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM duefleet_inbox WHERE handled_at < now() - $1 * interval '1 millisecond'
		ORDER BY handled_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
)

// The statements for MariaDB.
const (
	// A repeat changes the row, so it affects 2 rows. Without a change that number would
	// depend on a setting of the connection. IGNORE would cut a text that is too long.
	onceMariaDB = `INSERT INTO duefleet_inbox (topic, id, version, step) VALUES (?, ?, ?, ?)
	ON DUPLICATE KEY UPDATE repeats = repeats + 1`

	forgetMariaDB = `DELETE i FROM (
		SELECT topic, id, version, step FROM duefleet_inbox FORCE INDEX (duefleet_inbox_handled_at)
		WHERE handled_at < UTC_TIMESTAMP(3) - INTERVAL ? * 1000 MICROSECOND
		ORDER BY handled_at LIMIT ? FOR UPDATE SKIP LOCKED) AS free
	STRAIGHT_JOIN duefleet_inbox AS i FORCE INDEX (PRIMARY)
	ON i.topic = free.topic AND i.id = free.id AND i.version = free.version AND i.step = free.step`

	// longest is the size of the columns version and step, in bytes.
	longest = 255
)

// Inbox is the table of a kind of database. The functions of this package use the zero value.
type Inbox struct {
	// Dialect is the kind of database. Defaults to outbox.PostgreSQL.
	Dialect outbox.Dialect
}

// Once reports whether tx is the first transaction with this task, and inserts the mark that
// makes all later ones repeats. Do the effect in tx if first is true, commit, and return nil
// from the handler in both cases. Ask for the next step of a chain in both cases, too.
//
// Repeats are other deliveries of the same version of the task, retries included. If an
// outbox scheduled the task, these are all deliveries of one row of it, also if a relay
// stored the row twice. A task that is scheduled again under its ID isn't a repeat.
//
// step is "" for a task that isn't a chain. In a chain it is a name that each step has alone,
// such as its number in the payload. A later step of the same name counts as a repeat.
//
// While another transaction with the same task is open, Once waits for its end. After an
// error the transaction must be rolled back, unless the error is a *task.RuleError. Other
// errors are outbox.ErrNoTable, outbox.ErrRights, and the database's own.
func Once(ctx context.Context, tx outbox.Tx, t task.Task, step string) (first bool, err error) {
	return Inbox{}.Once(ctx, tx, t, step)
}

// Once is like the function Once. On MariaDB, step has at most 255 bytes.
func (i Inbox) Once(ctx context.Context, tx outbox.Tx, t task.Task, step string) (first bool, err error) {
	if err := cmp.Or(task.CheckTopic(t.Topic), task.CheckID(t.ID)); err != nil {
		return false, err
	}
	once := oncePostgres
	if i.Dialect == outbox.MariaDB {
		once = onceMariaDB
		if err := cmp.Or(fits("step", step), fits("header "+outbox.HeaderRow, version(t))); err != nil {
			return false, err
		}
	}
	result, err := tx.ExecContext(ctx, once, t.Topic, t.ID, version(t), step)
	var n int64
	if err == nil {
		n, err = result.RowsAffected()
	}
	if err != nil {
		return false, fmt.Errorf("mark task in the inbox: topic %s, ID %q, step %q: %w", t.Topic, t.ID, step,
			dberr.Explained(err))
	}
	return n == 1, nil
}

// fits checks the length of a text that is part of the mark. MariaDB may cut a longer one, and
// two tasks would have one mark.
func fits(field, text string) error {
	if len(text) > longest {
		return &task.RuleError{Field: field, Rule: fmt.Sprintf("must be at most %d bytes", longest),
			Got: fmt.Sprintf("%d bytes", len(text))}
	}
	return nil
}

// version names the version of a task, the same in all its deliveries.
func version(t task.Task) string {
	if row := t.Headers[outbox.HeaderRow]; row != "" {
		return row
	}
	return strconv.FormatInt(t.Scheduled.UnixMilli(), 10)
}

// Forget removes marks that are older than age, the oldest first and at most most of them.
// It returns their number. A task whose mark is gone takes effect again if it is delivered
// again.
func Forget(ctx context.Context, db *sql.DB, age time.Duration, most int) (n int64, err error) {
	return Inbox{}.Forget(ctx, db, age, most)
}

// Forget is like the function Forget.
func (i Inbox) Forget(ctx context.Context, db *sql.DB, age time.Duration, most int) (n int64, err error) {
	n, err = i.remove(ctx, db, age, most)
	if err != nil {
		return 0, fmt.Errorf("remove marks from the inbox: %w", dberr.Explained(err))
	}
	return n, nil
}

// remove locks no gaps between rows on MariaDB, because its transaction reads what is
// committed only.
func (i Inbox) remove(ctx context.Context, db *sql.DB, age time.Duration, most int) (n int64, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	forget := forgetPostgres
	if i.Dialect == outbox.MariaDB {
		forget = forgetMariaDB
	}
	result, err := tx.ExecContext(ctx, forget, age.Milliseconds(), most)
	if err != nil {
		return 0, err
	}
	if n, err = result.RowsAffected(); err != nil {
		return 0, err
	}
	return n, tx.Commit()
}
