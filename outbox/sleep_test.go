package outbox

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/test/check"
)

// asleep waits until n relays sleep, and have looked for rows since they fell asleep. Their
// looks are rare by then.
func (s *sandbox) asleep(n int) {
	s.t.Helper()
	check.Until(s.t, "relays that sleep", func() bool {
		return dbtest.Value[int](s.t, s.db, `SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
			WHERE datname = current_database() AND locktype = 'advisory' AND objsubid = 2 AND mode = 'ShareLock'
			AND granted AND state = 'idle' AND state_change < clock_timestamp() - interval '50 ms'`) == n
	})
}

// TestACommitNotifiesOnlyWhileARelaySleeps: a notification at each commit would be dear.
func TestACommitNotifiesOnlyWhileARelaySleeps(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, dbtest.PostgreSQL)
	conn, err := pgx.Connect(t.Context(), s.url)
	check.OK(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), `LISTEN `+channel)
	check.OK(t, err)
	next := func() string {
		n, err := conn.WaitForNotification(check.Context(t))
		check.OK(t, err)
		return n.Payload
	}
	s.schedule("awake")
	dbtest.Exec(t, s.db, `SELECT pg_notify('duefleet_outbox', 'by the test')`)
	check.Equal(t, "the first notification", next(), "by the test")
	s.relay(s.listens)
	s.relay(s.listens)
	s.asleep(2)
	s.schedule("asleep")
	check.Equal(t, "the notification", next(), "")
	s.drained()
	s.is("asleep", true)
}

// TestACommitThatDidNotNotifyIsSeen: its INSERT came while no relay slept, its commit while
// one does. The relay polls once an hour only.
func TestACommitThatDidNotNotifyIsSeen(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, dbtest.PostgreSQL)
	s.commit(func(tx Tx) error {
		check.OK(t, Schedule(t.Context(), tx, inAnHour("o-1")))
		s.relay(s.listens)
		s.asleep(1)
		return nil
	})
	s.drained()
	s.is("o-1", true)
}

// TestTheLockOfARelayEndsWithIt: otherwise commits would notify although no relay listens.
// The database lends one connection more than the relay's two.
func TestTheLockOfARelayEndsWithIt(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, dbtest.PostgreSQL)
	db := dbtest.Open(t, s.url)
	db.SetMaxOpenConns(3)
	ctx, stop := context.WithCancel(t.Context())
	r := Relay{DB: db, Client: s.client}
	s.listens(&r)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	s.asleep(1)
	check.OK(t, inTx(t.Context(), db, nil, func(*sql.Tx) error { return nil }))
	stop()
	check.OK(t, <-ended)
	s.asleep(0)
}
