package outbox

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"strings"
	"time"
)

//go:embed mariadb/*.sql
var mariadbFiles embed.FS

func mariadb() statements {
	return statements{
		insertRow: `INSERT INTO duefleet_outbox (action, topic, id, due_ms, delay_ms, if_absent, if_present, payload,
	content_type, headers, routing_key, priority, expiration_ms, correlation_id, reply_to)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,

		// The locking read sees rows that the subquery doesn't, because they were committed
		// since the statement began. The subquery returns no such row, so they wait for the
		// next look. NOT EXISTS would return two rows of an ID.
		takeRows: `SELECT seq, action, topic, id, due_ms, delay_ms,
	TIMESTAMPDIFF(MICROSECOND, inserted_at, UTC_TIMESTAMP(3)) DIV 1000,
	if_absent, if_present, payload, coalesce(content_type, ''), coalesce(headers, '{}'),
	coalesce(routing_key, ''), coalesce(priority, 0), coalesce(expiration_ms, 0), coalesce(correlation_id, ''),
	coalesce(reply_to, '')
FROM duefleet_outbox AS o FORCE INDEX (PRIMARY)
WHERE failed IS NULL AND FIND_IN_SET(topic, ?) = 0
	AND seq = (SELECT first.seq FROM duefleet_outbox AS first FORCE INDEX (duefleet_outbox_order)
		WHERE first.topic = o.topic AND first.id = o.id AND first.failed IS NULL ORDER BY first.seq LIMIT 1)
ORDER BY seq LIMIT ? FOR UPDATE SKIP LOCKED`,

		// IN would read the whole table if that is cheaper, and wait for open transactions.
		deleteRows: `DELETE o FROM JSON_TABLE(CONCAT('[', ?, ']'), '$[*]' COLUMNS (seq bigint PATH '$')) AS done
	STRAIGHT_JOIN duefleet_outbox AS o FORCE INDEX (PRIMARY) ON o.seq = done.seq`,
		setAside: `UPDATE duefleet_outbox SET failed = ? WHERE seq = ?`,

		// The locks of open transactions are skipped. To remove a lock while rows of its ID wait
		// is safe: later rows have larger numbers.
		removeLocks: `DELETE l FROM (
		SELECT topic, id FROM duefleet_outbox_id FORCE INDEX (duefleet_outbox_id_used_at)
		WHERE used_at < UTC_TIMESTAMP() - INTERVAL 1 MINUTE ORDER BY used_at LIMIT ? FOR UPDATE SKIP LOCKED) AS free
	STRAIGHT_JOIN duefleet_outbox_id AS l FORCE INDEX (PRIMARY) ON l.topic = free.topic AND l.id = free.id`,

		countRows: `SELECT count(IF(failed IS NULL, 1, NULL)), coalesce(greatest(
	TIMESTAMPDIFF(MICROSECOND, min(IF(failed IS NULL, inserted_at, NULL)), UTC_TIMESTAMP(3)) / 1e6, 0), 0),
	count(failed) FROM duefleet_outbox`,

		readSchema: `SELECT version, outbox FROM duefleet_outbox_schema`,
		mayRelay: []string{
			`UPDATE duefleet_outbox SET failed = failed WHERE false`, `DELETE FROM duefleet_outbox WHERE false`,
			`DELETE FROM duefleet_outbox_id WHERE used_at < NULL`,
		},
		// Other isolation levels lock the gaps between rows, into which applications insert.
		relaying: &sql.TxOptions{Isolation: sql.LevelReadCommitted},
		poll:     50 * time.Millisecond,

		files: mariadbFiles, dir: "mariadb",
		tableExists: `SELECT count(*) > 0 FROM information_schema.tables
	WHERE table_schema = DATABASE() AND table_name = 'duefleet_outbox_schema'`,
		migrating: migratingMariaDB,
	}
}

// migratingMariaDB upgrades under a lock, not in a transaction: MariaDB commits each statement
// that defines something.
func migratingMariaDB(ctx context.Context, db *sql.DB, upgrade func(migration) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	const name = `CONCAT('duefleet_outbox:', MD5(DATABASE()))`
	var locked sql.NullBool
	if err := conn.QueryRowContext(ctx, `SELECT GET_LOCK(`+name+`, 86400)`).Scan(&locked); err != nil {
		return err
	}
	if !locked.Bool {
		return errors.New("another program has migrated the outbox for a day, or no database is chosen")
	}
	err = upgrade(single{conn})
	_, released := conn.ExecContext(context.WithoutCancel(ctx), `DO RELEASE_LOCK(`+name+`)`)
	return errors.Join(err, released)
}

// single executes the statements of a file one by one, because drivers take one at a time. A
// line that ends in a semicolon ends a statement.
type single struct{ conn *sql.Conn }

// ExecContext executes statements.
func (s single) ExecContext(ctx context.Context, file string, args ...any) (last sql.Result, err error) {
	for statement := range strings.SplitSeq(strings.TrimSpace(file)+"\n", ";\n") {
		if statement == "" {
			continue
		}
		if last, err = s.conn.ExecContext(ctx, statement, args...); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// QueryRowContext reads one row.
func (s single) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return s.conn.QueryRowContext(ctx, query, args...)
}
