package outbox

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/outbox/pgxlisten"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestTheLastCommitOfAnIDWins: transactions change the same few IDs at once and then lock a
// row of the business, in this bad order. Three relays share the table. The transaction that
// committed last wrote the task of each ID.
func TestTheLastCommitOfAnIDWins(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		dbtest.Exec(t, s.db, `CREATE TABLE business (id varchar(9) PRIMARY KEY, last varchar(9))`)
		ids := []string{"a", "b", "c"}
		for _, id := range ids {
			dbtest.Exec(t, s.db, `INSERT INTO business VALUES ($1, '')`, id)
		}
		for range 3 {
			s.relay(func(r *Relay) { r.Batch = 2 })
		}
		var writers sync.WaitGroup
		for w := range 8 {
			writers.Go(func() {
				for i := range 40 {
					id, text := ids[i%len(ids)], fmt.Sprintf("%d/%d", w, i)
					err := inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error {
						r := inAnHour(id)
						r.Payload = []byte(text)
						if err := s.w.Schedule(t.Context(), tx, r); err != nil {
							return err
						}
						_, err := tx.ExecContext(t.Context(), dbtest.SQL(s.db, `UPDATE business SET last = $1 WHERE id = $2`), text, id)
						return err
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		s.drained()
		for _, id := range ids {
			last := dbtest.Value[string](t, s.db, `SELECT last FROM business WHERE id = $1`, id)
			check.Equal(t, id, string(s.stored(id).Payload), last)
		}
	})
}

// TestNoRelayOvertakesAnother: while one relay holds the first row of an ID, another takes
// rows of other IDs only.
func TestNoRelayOvertakesAnother(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		for _, id := range []string{"a", "a", "b"} {
			s.schedule(id)
		}
		takes := func(tx *sql.Tx, n int) (seqs []int64) {
			rows, err := s.w.Dialect.statements().take(t.Context(), tx, "", n, "")
			check.OK(t, err)
			for _, r := range rows {
				seqs = append(seqs, r.seq)
			}
			return seqs
		}
		begin := func() *sql.Tx {
			tx, err := s.db.BeginTx(t.Context(), s.w.Dialect.statements().relaying)
			check.OK(t, err)
			t.Cleanup(func() { _ = tx.Rollback() })
			return tx
		}
		first := begin()
		check.Equal(t, "the first relay's", fmt.Sprint(takes(first, 1)), "[1]")
		check.Equal(t, "the second relay's", fmt.Sprint(takes(begin(), 9)), "[3]")
		_, err := first.ExecContext(t.Context(), s.w.Dialect.statements().deleteRows, "1")
		check.OK(t, err)
		check.OK(t, first.Commit())
		check.Equal(t, "the third relay's", fmt.Sprint(takes(begin(), 9)), "[2]")
	})
}

// TestARowThatBreaksARuleIsSetAside: the rows are written by another program, without the
// library's checks.
func TestARowThatBreaksARuleIsSetAside(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		columns := `INSERT INTO duefleet_outbox (topic, id, delay_ms, headers, priority, expiration_ms, payload) VALUES `
		for id, values := range map[string]string{
			"topic":      `('a b', $1, 0, NULL, NULL, NULL, NULL)`,
			"headers":    `('orders', $1, 0, '{"k": 1}', NULL, NULL, NULL)`,
			"priority":   `('orders', $1, 0, NULL, 256, NULL, NULL)`,
			"expiration": `('orders', $1, 0, NULL, NULL, -1, NULL)`,
			"delay":      `('orders', $1, 9000000000000000000, NULL, NULL, NULL, NULL)`,
		} {
			dbtest.Exec(t, s.db, columns+values, id)
		}
		dbtest.Exec(t, s.db, `INSERT INTO duefleet_outbox (topic, id, delay_ms, payload) VALUES ('orders', 'payload', 0, $1)`,
			make([]byte, 262145))
		dbtest.Exec(t, s.db, `INSERT INTO duefleet_outbox (action, topic, id) VALUES ('cancel', 'orders', '')`)
		dbtest.Exec(t, s.db, `INSERT INTO duefleet_outbox (action, topic, id, due_ms)
			VALUES ('reschedule', 'orders', 'due', 1700000000)`)
		s.schedule("good")
		s.relay()
		s.drained()
		s.is("good", true)
		for id, want := range map[string]string{
			"topic":      "topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 3 bytes with ' ' at byte 1",
			"headers":    "headers: must be a JSON object of strings; got other JSON",
			"priority":   "priority: must be 0 to 255; got 256",
			"expiration": "expiration_ms: must be 0 to 4294967295; got -1",
			"delay":      "delay_ms: must be 0 to 3155760000000; got 9000000000000000000",
			"payload":    "payload: must be at most 262144 bytes (max_payload); got 262145 bytes",
			"":           "id: must be 1 to 255 bytes of valid UTF-8; got 0 bytes",
			"due": "due: looks like Unix seconds that were taken for milliseconds; want time.Unix(1700000000, 0); " +
				"got 1970-01-20T16:13:20Z",
		} {
			check.Equal(t, id, dbtest.Value[string](t, s.db, `SELECT failed FROM duefleet_outbox WHERE id = $1`, id), want)
		}
		dbtest.Exec(t, s.db, `UPDATE duefleet_outbox SET priority = 255, failed = NULL WHERE id = 'priority'`)
		s.drained()
		check.Equal(t, "priority", s.stored("priority").Options.Priority, 255)
	})
}

// TestATopicThatNobodyServesWaits: its rows fill a batch, and rows of other topics go on.
func TestATopicThatNobodyServesWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		for i := range 5 {
			s.commit(func(tx Tx) error {
				r := inAnHour(fmt.Sprint(i))
				r.Topic = "later"
				return s.w.Schedule(t.Context(), tx, r)
			})
		}
		s.schedule("o-1")
		s.relay(func(r *Relay) { r.Batch = 2 })
		check.Until(t, "the topic that is served", func() bool { return s.rows("topic = 'orders'") == 0 })
		s.is("o-1", true)
		check.Equal(t, "rows that wait", s.rows("topic = 'later' AND failed IS NULL"), 5)
		_, err := s.redis.Store.Topic("later").Ensure(t.Context(), 1)
		check.OK(t, err)
		s.drained()
		_, err = s.client.Get(t.Context(), "later", "4")
		check.OK(t, err)
		check.Equal(t, "lines about it", strings.Count(s.log.String(), "wait for their topic"), 1)
	})
}

// TestRedisMayBeAway: rows wait in the table, and the log has one line when that begins and
// one when it is over.
func TestRedisMayBeAway(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, kind dbtest.Kind) {
		server := servertest.OwnRedis(t)
		s := newSandboxAt(t, kind, fixture.At(t, server.Addr(), "duefleet"))
		s.relay()
		s.schedule("before")
		s.drained()
		check.OK(t, server.Kill())
		s.schedule("meanwhile")
		check.Until(t, "a line in the log", func() bool { return strings.Contains(s.log.String(), "rows wait in the table") })
		check.Equal(t, "rows that wait", s.rows("failed IS NULL"), 1)
		check.OK(t, server.Restart(t.Context()))
		s.drained()
		s.is("meanwhile", true)
		check.Until(t, "the last line", func() bool { return strings.Contains(s.log.String(), "over: ") })
		check.Equal(t, "lines", strings.Count(s.log.String(), "\n"), 2)
	})
}

// TestARepeatOfARowIsTheSameTask: the database refuses to remove the row after Redis has the
// task, as if the relay had ended then. The next try stores the same task: same row, due at
// the same time.
func TestARepeatOfARowIsTheSameTask(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		if s.kind == dbtest.PostgreSQL {
			dbtest.Exec(t, s.db, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$`)
		}
		dbtest.Exec(t, s.db, `CREATE TRIGGER refuse BEFORE DELETE ON duefleet_outbox FOR EACH ROW `+
			s.pick(`EXECUTE FUNCTION refuse()`, `SIGNAL SQLSTATE '45000'`))
		s.schedule("o-1")
		s.relay()
		stored := func() (task producer.Stored, err error) { return s.client.Get(t.Context(), orders, "o-1") }
		check.Until(t, "the task", func() bool { _, err := stored(); return err == nil })
		first, err := stored()
		check.OK(t, err)
		check.Until(t, "a repeat", func() bool {
			again, err := stored()
			return err == nil && again.Scheduled.After(first.Scheduled)
		})
		dbtest.Exec(t, s.db, `DROP TRIGGER refuse`+s.pick(` ON duefleet_outbox`, ``))
		s.drained()
		again := s.stored("o-1")
		check.Equal(t, "the row", again.Headers[HeaderRow], first.Headers[HeaderRow])
		if d := again.Due.Sub(first.Due); d.Abs() > time.Minute {
			t.Errorf("the repeat is due %s later", d)
		}
	})
}

// TestANotificationWakesTheRelay: the connection that listens ends, and the relay listens
// again. It polls once an hour only.
func TestANotificationWakesTheRelay(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, dbtest.PostgreSQL)
	s.relay(s.listens)
	s.schedule("first")
	s.drained()
	listeners := `FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'`
	check.Until(t, "the listener", func() bool {
		var n int
		check.OK(t, s.db.QueryRowContext(t.Context(), `SELECT count(*) `+listeners).Scan(&n))
		return n > 0
	})
	dbtest.Exec(t, s.db, `SELECT pg_terminate_backend(pid) `+listeners)
	check.Until(t, "a line in the log", func() bool {
		return strings.Contains(s.log.String(), "over: the outbox relay gets no notifications")
	})
	s.schedule("second")
	s.drained()
	s.is("second", true)
}

func TestARelayWithoutWhatItNeeds(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, dbtest.PostgreSQL)
	check.Refusals(t, map[string]check.Refusal{
		"no fields": {Relay{}.Run(t.Context()), "outbox: Relay.DB and Relay.Client must be given"},
		"poll": {Relay{DB: s.db, Client: s.client, Poll: -1}.Run(t.Context()),
			"outbox: Relay.Poll and Relay.Batch must not be negative; got -1ns and 0"},
		"listener": {Relay{Dialect: MariaDB, DB: s.db, Client: s.client,
			Listener: pgxlisten.Listener{DB: s.db}}.Run(t.Context()),
			"outbox: Relay.Listener must be nil: MariaDB has no notifications"},
	})
}
