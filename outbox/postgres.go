package outbox

import "embed"

// postgresFiles are the migrations, one file a version, in order.
//
//go:embed postgres/*.sql
var postgresFiles embed.FS

// channel is the channel of LISTEN and NOTIFY in the trigger.
const channel = "duefleet_outbox"

// The statements for PostgreSQL.
const (
	insertRow = `INSERT INTO duefleet_outbox (action, topic, id, due_ms, delay_ms, if_absent, if_present, payload,
	content_type, headers, routing_key, priority, expiration_ms, correlation_id, reply_to)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`

	// takeRows locks at most $1 rows, each the first of its ID, except topics in $2. An ID
	// whose first row is locked by another relay has no row here. The subquery reads one
	// entry of an index, also if the table's statistics are old; a join might read all.
	takeRows = `SELECT seq, action, topic, id, due_ms, delay_ms,
	(extract(epoch FROM clock_timestamp() - inserted_at) * 1000)::bigint,
	if_absent, if_present, payload, coalesce(content_type, ''), coalesce(headers::text, '{}'),
	coalesce(routing_key, ''), coalesce(priority, 0), coalesce(expiration_ms, 0), coalesce(correlation_id, ''),
	coalesce(reply_to, '')
FROM duefleet_outbox AS o
WHERE failed IS NULL AND topic <> ALL (string_to_array($2, ','))
	AND seq = (SELECT min(first.seq) FROM duefleet_outbox AS first
		WHERE first.topic = o.topic AND first.id = o.id AND first.failed IS NULL)
ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED`

	deleteRows = `DELETE FROM duefleet_outbox WHERE seq = ANY (string_to_array($1, ',')::bigint[])`

	// fallAsleep takes the lock for which the trigger looks, until wakeUp or the end of
	// the connection. Several relays share it.
	fallAsleep = `SELECT pg_advisory_lock_shared(hashtext('duefleet_outbox'), 'duefleet_outbox'::regclass::oid::int)`
	wakeUp     = `SELECT pg_advisory_unlock_shared(hashtext('duefleet_outbox'), 'duefleet_outbox'::regclass::oid::int)`

	setAside = `UPDATE duefleet_outbox SET failed = $2 WHERE seq = $1`

	// countRows returns the rows that wait, the age of the oldest in s, and the failed rows.
	countRows = `SELECT count(*) FILTER (WHERE failed IS NULL),
	coalesce(greatest(extract(epoch FROM clock_timestamp() - min(inserted_at) FILTER (WHERE failed IS NULL)), 0), 0),
	count(failed) FROM duefleet_outbox`

	readSchema = `SELECT version, outbox::text FROM duefleet_outbox_schema`

	// readRights returns whether the user may do what a relay does.
	readRights = `SELECT has_table_privilege('duefleet_outbox', 'SELECT')
	AND has_table_privilege('duefleet_outbox', 'UPDATE') AND has_table_privilege('duefleet_outbox', 'DELETE')`

	// lockMigration makes a second Migrate wait for the first.
	lockMigration = `SELECT pg_advisory_xact_lock(hashtextextended('duefleet_outbox_schema', 0))`

	tableExists = `SELECT to_regclass('duefleet_outbox_schema') IS NOT NULL`
)
