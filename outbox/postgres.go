package outbox

import (
	"context"
	"database/sql"
	"embed"
	"time"
)

//go:embed postgres/*.sql
var postgresFiles embed.FS

// channel is the channel of LISTEN and NOTIFY in the trigger for PostgreSQL.
const channel = "duefleet_outbox"

func postgres() statements {
	return statements{
		insertRow: `INSERT INTO duefleet_outbox (action, topic, id, due_ms, delay_ms, if_absent, if_present, payload,
	content_type, headers, routing_key, priority, expiration_ms, correlation_id, reply_to)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,

		// The subquery reads one entry of an index, also if the table's statistics are old;
		// a join might read all.
		takeRows: `SELECT seq, action, topic, id, due_ms, delay_ms,
	(extract(epoch FROM clock_timestamp() - inserted_at) * 1000)::bigint,
	if_absent, if_present, payload, coalesce(content_type, ''), coalesce(headers::text, '{}'),
	coalesce(routing_key, ''), coalesce(priority, 0), coalesce(expiration_ms, 0), coalesce(correlation_id, ''),
	coalesce(reply_to, '')
FROM duefleet_outbox AS o
WHERE failed IS NULL AND topic <> ALL (string_to_array($1, ','))
	AND seq = (SELECT min(first.seq) FROM duefleet_outbox AS first
		WHERE first.topic = o.topic AND first.id = o.id AND first.failed IS NULL)
ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED`,

		deleteRows: `DELETE FROM duefleet_outbox WHERE seq = ANY (string_to_array($1, ',')::bigint[])`,
		setAside:   `UPDATE duefleet_outbox SET failed = $1 WHERE seq = $2`,

		fallAsleep: `SELECT pg_advisory_lock_shared(hashtext('duefleet_outbox'), 'duefleet_outbox'::regclass::oid::int)`,
		wakeUp:     `SELECT pg_advisory_unlock_shared(hashtext('duefleet_outbox'), 'duefleet_outbox'::regclass::oid::int)`,

		countRows: `SELECT count(*) FILTER (WHERE failed IS NULL),
	coalesce(greatest(extract(epoch FROM clock_timestamp() - min(inserted_at) FILTER (WHERE failed IS NULL)), 0), 0),
	count(failed) FROM duefleet_outbox`,

		readSchema: `SELECT version, outbox::text FROM duefleet_outbox_schema`,
		mayRelay: []string{
			`UPDATE duefleet_outbox SET failed = failed WHERE false`, `DELETE FROM duefleet_outbox WHERE false`,
		},
		poll: time.Second,

		files: postgresFiles, dir: "postgres",
		tableExists: `SELECT to_regclass('duefleet_outbox_schema') IS NOT NULL`,
		migrating:   migratingPostgres,
	}
}

// migratingPostgres upgrades in one transaction.
func migratingPostgres(ctx context.Context, db *sql.DB, upgrade func(migration) error) error {
	return inTx(ctx, db, nil, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('duefleet_outbox_schema', 0))`)
		if err != nil {
			return err
		}
		return upgrade(tx)
	})
}
