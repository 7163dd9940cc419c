package outbox

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestATaskIsScheduledIfItsTransactionCommits: a relay that runs meanwhile brings nothing of
// open or rolled back transactions to Redis.
func TestATaskIsScheduledIfItsTransactionCommits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		s.relay(s.listens)
		left, err := s.db.BeginTx(t.Context(), nil)
		check.OK(t, err)
		check.OK(t, s.w.Schedule(t.Context(), left, inAnHour("open")))
		undone := errors.New("undone")
		err = inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error {
			return errors.Join(s.w.Schedule(t.Context(), tx, inAnHour("rolled-back")), undone)
		})
		check.Equal(t, "the error", err.Error(), undone.Error())
		s.schedule("committed")
		s.drained()
		s.is("committed", true)
		s.is("rolled-back", false)
		s.is("open", false)
		check.OK(t, left.Commit())
		s.drained()
		s.is("open", true)
	})
}

func TestAllFieldsArrive(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		r := producer.Request{
			Topic: orders, ID: "o/1 ä", When: producer.At(time.Now().Add(time.Hour)), Payload: []byte("\x00\xff"),
			ContentType: "text/plain", Headers: map[string]string{"k": "v\x00\"", "": ""},
			Options: task.Options{RoutingKey: "key", Priority: 255, Expiration: time.Second, CorrelationID: "c", ReplyTo: "r"},
		}
		delete(r.Headers, "")
		s.commit(func(tx Tx) error { return s.w.Schedule(t.Context(), tx, r) })
		s.relay()
		s.drained()
		got := s.stored(r.ID)
		at, _ := r.When.Instant()
		check.Equal(t, "due", got.Due.UnixMilli(), at.UnixMilli())
		check.Equal(t, "payload", string(got.Payload), string(r.Payload))
		check.Equal(t, "content type", got.ContentType, r.ContentType)
		check.Equal(t, "options", got.Options, r.Options)
		row := got.Headers[HeaderRow]
		check.Equal(t, "the row", row, dbtest.Value[string](t, s.db, "SELECT outbox FROM duefleet_outbox_schema")+"/1")
		delete(got.Headers, HeaderRow)
		check.Equal(t, "headers", maps.Equal(got.Headers, r.Headers), true)
	})
}

func TestCancelAndReschedule(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		s.relay(s.listens)
		for _, id := range []string{"a", "b"} {
			s.schedule(id)
		}
		due := time.Now().Add(2 * time.Hour)
		s.commit(func(tx Tx) error {
			return errors.Join(
				s.w.Cancel(t.Context(), tx, orders, "a"), s.w.Reschedule(t.Context(), tx, orders, "b", producer.At(due)),
				s.w.Cancel(t.Context(), tx, orders, "none"), s.w.Reschedule(t.Context(), tx, orders, "none", producer.Now()),
			)
		})
		s.drained()
		s.is("a", false)
		s.is("none", false)
		check.Equal(t, "due", s.stored("b").Due.UnixMilli(), due.UnixMilli())
		check.Equal(t, "payload", string(s.stored("b").Payload), "b")
	})
}

func TestConditions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		s.schedule("there")
		second := producer.Request{Topic: orders, ID: "there", When: producer.In(time.Hour), IfAbsent: true}
		missing := producer.Request{Topic: orders, ID: "missing", When: producer.In(time.Hour), IfPresent: true}
		s.commit(func(tx Tx) error {
			return errors.Join(s.w.Schedule(t.Context(), tx, second), s.w.Schedule(t.Context(), tx, missing))
		})
		s.relay()
		s.drained()
		check.Equal(t, "payload", string(s.stored("there").Payload), "there")
		s.is("missing", false)
	})
}

// TestATransactionOfPgx: pgx's own transactions work without database/sql.
func TestATransactionOfPgx(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, dbtest.PostgreSQL)
	conn, err := pgx.Connect(t.Context(), s.url)
	check.OK(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	r := inAnHour("o-1")
	r.Headers = map[string]string{"k": "v"}
	check.OK(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return Schedule(t.Context(), Pgx(tx), r) }))
	s.relay()
	s.drained()
	check.Equal(t, "header", s.stored("o-1").Headers["k"], "v")
	check.Equal(t, "payload", string(s.stored("o-1").Payload), "o-1")
}

// TestAWaitInTheTableIsPartOfTheDelay: a relay that comes late doesn't make tasks late.
func TestAWaitInTheTableIsPartOfTheDelay(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		for id, minutes := range map[string]int{"late": 20, "overdue": 120} {
			s.schedule(id)
			dbtest.Exec(t, s.db, `UPDATE duefleet_outbox SET inserted_at = inserted_at - `+
				s.pick(`$1 * interval '1 minute'`, `INTERVAL $1 MINUTE`)+` WHERE id = $2`, minutes, id)
		}
		s.relay()
		s.drained()
		s.dueIn("late", 40*time.Minute)
		s.dueIn("overdue", 0)
	})
}

// dueIn ends the test unless a task is due some time after it was stored, minus at most ten
// minutes for this test.
func (s *sandbox) dueIn(id string, want time.Duration) {
	s.t.Helper()
	got := s.stored(id)
	if d := got.Due.Sub(got.Scheduled); d > want || d < want-10*time.Minute {
		s.t.Errorf("%s is due %s after it was stored, want %s minus the wait of this test", id, d, want)
	}
}

// TestADatabaseWhoseClockIsOff: a wrong clock does no harm. If it is set while a row waits,
// the delay changes, but doesn't grow beyond the full delay. An instant is by Redis's clock.
func TestADatabaseWhoseClockIsOff(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, clock := range map[string]struct{ atInsert, atRelay, left time.Duration }{
		"wrong":     {2 * year, 2 * year, time.Hour},
		"set ahead": {-2 * year, -2*year + 40*time.Minute, 20 * time.Minute},
		"far ahead": {0, 3 * time.Hour, 0},
		"set back":  {0, -3 * time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sandbox) {
				set := s.clock()
				set(clock.atInsert)
				s.schedule("delay")
				instant := inAnHour("instant")
				instant.When = producer.At(time.Now().Add(time.Hour))
				s.commit(func(tx Tx) error { return s.w.Schedule(t.Context(), tx, instant) })
				set(clock.atRelay)
				s.relay()
				s.drained()
				s.dueIn("delay", clock.left)
				at, _ := instant.When.Instant()
				check.Equal(t, "the instant", s.stored("instant").Due.UnixMilli(), at.UnixMilli())
			})
		})
	}
}

// clock gives the database a clock that can be set, ahead of the machine's.
func (s *sandbox) clock() (set func(ahead time.Duration)) {
	s.t.Helper()
	if s.kind == dbtest.MariaDB {
		return func(ahead time.Duration) {
			s.t.Helper()
			s.db = s.ahead(ahead)
		}
	}
	dbtest.Exec(s.t, s.db, `CREATE SCHEMA clock`)
	dbtest.Exec(s.t, s.db, `CREATE TABLE clock.ahead AS SELECT interval '0' AS ahead`)
	dbtest.Exec(s.t, s.db, `CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
		$$ SELECT pg_catalog.clock_timestamp() + ahead FROM clock.ahead $$`)
	s.db = dbtest.Open(s.t, s.url+"&search_path=clock,pg_catalog,public")
	return func(ahead time.Duration) {
		s.t.Helper()
		dbtest.Exec(s.t, s.db, `UPDATE clock.ahead SET ahead = $1 * interval '1 second'`, ahead.Seconds())
	}
}

func TestATraceGoesOn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
		ctx := trace.ContextWithSpanContext(t.Context(), span)
		s.commit(func(tx Tx) error { return s.w.Schedule(ctx, tx, inAnHour("o-1")) })
		s.relay()
		s.drained()
		check.Equal(t, "traceparent", s.stored("o-1").Headers["traceparent"],
			"00-01000000000000000000000000000000-0200000000000000-00")
	})
}

// TestInputIsCheckedFirst: the transaction that gets a *task.RuleError can go on, because the
// database never saw the row.
func TestInputIsCheckedFirst(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		with := func(change func(*producer.Request)) error {
			r := inAnHour("o-1")
			change(&r)
			return inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error { return s.w.Schedule(t.Context(), tx, r) })
		}
		full := map[string]string{}
		for i := range task.MaxHeaders {
			full[strings.Repeat("h", i+1)] = ""
		}
		check.Refusals(t, map[string]check.Refusal{
			"topic": {with(func(r *producer.Request) { r.Topic = "a b" }),
				"topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 3 bytes with ' ' at byte 1"},
			"due": {with(func(r *producer.Request) { r.When = producer.When{} }),
				"due: must be given; Now() is due now; got no time"},
			"far": {with(func(r *producer.Request) { r.When = producer.At(time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)) }),
				"due: must be at most 100 years ahead; got 2999-01-01T00:00:00Z"},
			"size": {with(func(r *producer.Request) { r.Payload = make([]byte, task.DefaultMaxPayload+1) }),
				"payload: must be at most 262144 bytes (max_payload); got 262145 bytes"},
			"headers": {with(func(r *producer.Request) { r.Headers = full }), "headers: must be at most 32; got 33 headers"},
			"cancel":  {s.w.Cancel(t.Context(), nil, orders, ""), "id: must be 1 to 255 bytes of valid UTF-8; got 0 bytes"},
			"reschedule": {s.w.Reschedule(t.Context(), nil, orders, "o-1", producer.In(0)),
				"due: must be given; Now() is due now; got In(0)"},
		})
		if s.kind == dbtest.PostgreSQL {
			for field, err := range map[string]error{
				"id":             with(func(r *producer.Request) { r.ID = "a\x00" }),
				"content_type":   with(func(r *producer.Request) { r.ContentType = "a\x00" }),
				"routing_key":    with(func(r *producer.Request) { r.Options.RoutingKey = "a\x00" }),
				"correlation_id": with(func(r *producer.Request) { r.Options.CorrelationID = "a\x00" }),
				"reply_to":       with(func(r *producer.Request) { r.Options.ReplyTo = "a\x00" }),
			} {
				check.Refusals(t, map[string]check.Refusal{field: {err,
					field + ": must not contain the byte 0, which the database can't store as text; got it at byte 1"}})
			}
		}
		check.Equal(t, "rows", s.rows("true"), 0)
		large := inAnHour("large")
		large.Payload = make([]byte, task.DefaultMaxPayload+1)
		s.commit(func(tx Tx) error {
			return Writer{Dialect: s.w.Dialect, MaxPayload: len(large.Payload)}.Schedule(t.Context(), tx, large)
		})
		check.Equal(t, "rows", s.rows("true"), 1)
	})
}

// TestIDsAreComparedByteByByte: MariaDB's text ignores case, accents and spaces at the end.
// PostgreSQL refuses the byte 0.
func TestIDsAreComparedByteByByte(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		ids := []string{"a", "A", "a ", "ä", strings.Repeat("x", 255), strings.Repeat("x", 254)}
		if s.kind == dbtest.PostgreSQL {
			check.Equal(t, "the byte 0", fmt.Sprint(s.w.Cancel(t.Context(), nil, orders, "a\x00")),
				"id: must not contain the byte 0, which the database can't store as text; got it at byte 1")
		}
		if s.kind == dbtest.MariaDB {
			ids = append(ids, "a\x00")
		}
		for _, id := range ids {
			s.schedule(id)
		}
		s.relay()
		s.drained()
		for _, id := range ids {
			check.Equal(t, id, string(s.stored(id).Payload), id)
		}
	})
}

// TestATransactionThatWaitsTakesItsNumberAfterwards: otherwise the second row of the first
// transaction would overtake the row of the second.
func TestATransactionThatWaitsTakesItsNumberAfterwards(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		schedule := func(tx Tx, payload string) error {
			r := inAnHour("o-1")
			r.Payload = []byte(payload)
			return s.w.Schedule(t.Context(), tx, r)
		}
		first, err := s.db.BeginTx(t.Context(), nil)
		check.OK(t, err)
		check.OK(t, schedule(first, "first"))
		second := make(chan error, 1)
		go func() {
			second <- inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error { return schedule(tx, "second") })
		}()
		check.Until(t, "a transaction that waits", func() bool { return dbtest.Waiting(t, s.db) == 1 })
		check.OK(t, schedule(first, "first again"))
		check.OK(t, first.Commit())
		check.OK(t, check.Receive(t, "the second", second))
		s.relay()
		s.drained()
		check.Equal(t, "the last", string(s.stored("o-1").Payload), "second")
	})
}

// TestAnOpenTransactionHoldsUpNoOther: the relay doesn't wait for the rows of one that is
// open, also if the table has few rows.
func TestAnOpenTransactionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		open, err := s.db.BeginTx(t.Context(), nil)
		check.OK(t, err)
		defer open.Rollback() //nolint:errcheck // it only ends the transaction
		check.OK(t, s.w.Schedule(t.Context(), open, inAnHour("open")))
		for i := range 20 {
			s.schedule(fmt.Sprint(i))
		}
		waits := false
		s.relay(func(r *Relay) { r.Batch = 7 })
		check.Until(t, "an empty outbox", func() bool {
			waits = waits || dbtest.Waiting(t, s.db) > 0
			return s.rows("failed IS NULL") == 0
		})
		check.Equal(t, "the relay waits", waits, false)
	})
}
