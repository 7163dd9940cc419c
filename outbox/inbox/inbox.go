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
	"github.com/duefleet/duefleet/outbox/internal/pgerr"
	"github.com/duefleet/duefleet/task"
)

const once = `INSERT INTO duefleet_inbox (topic, id, version, step) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`

// forget removes the oldest marks. Several programs may call it at once.
const forget = `DELETE FROM duefleet_inbox WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM duefleet_inbox WHERE handled_at < now() - $1 * interval '1 millisecond'
	ORDER BY handled_at LIMIT $2 FOR UPDATE SKIP LOCKED))`

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
	if err := cmp.Or(task.CheckTopic(t.Topic), task.CheckID(t.ID)); err != nil {
		return false, err
	}
	result, err := tx.ExecContext(ctx, once, t.Topic, t.ID, version(t), step)
	var n int64
	if err == nil {
		n, err = result.RowsAffected()
	}
	if err != nil {
		return false, fmt.Errorf("mark task in the inbox: topic %s, ID %q, step %q: %w", t.Topic, t.ID, step,
			pgerr.Explained(err))
	}
	return n == 1, nil
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
	result, err := db.ExecContext(ctx, forget, age.Milliseconds(), most)
	if err == nil {
		n, err = result.RowsAffected()
	}
	if err != nil {
		return 0, fmt.Errorf("remove marks from the inbox: %w", pgerr.Explained(err))
	}
	return n, nil
}
