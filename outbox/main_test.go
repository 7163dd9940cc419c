package outbox

import (
	"database/sql"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/outbox/pgxlisten"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

const orders = fixture.Orders

func TestMain(m *testing.M) { dbtest.Main(m) }

// sandbox is a database with an outbox, and a Redis with the topic orders.
type sandbox struct {
	t      testing.TB
	kind   dbtest.Kind
	w      Writer // for the kind of database
	url    string
	db     *sql.DB
	redis  *fixture.Redis
	client *producer.Client
	log    *check.Log
}

// dialect returns the dialect of a kind of database.
func dialect(kind dbtest.Kind) Dialect {
	return map[dbtest.Kind]Dialect{dbtest.PostgreSQL: PostgreSQL, dbtest.MariaDB: MariaDB}[kind]
}

// each runs a test in a sandbox of each kind of database.
func each(t *testing.T, test func(t *testing.T, s *sandbox)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, kind dbtest.Kind) { test(t, newSandbox(t, kind)) })
}

func newSandbox(t testing.TB, kind dbtest.Kind) *sandbox {
	t.Helper()
	return newSandboxAt(t, kind, fixture.New(t))
}

func newSandboxAt(t testing.TB, kind dbtest.Kind, redis *fixture.Redis) *sandbox {
	t.Helper()
	s := &sandbox{t: t, kind: kind, url: dbtest.Database(t, kind), redis: redis, log: &check.Log{}}
	s.w.Dialect = dialect(kind)
	s.db = dbtest.Open(t, s.url)
	check.OK(t, s.w.Dialect.Migrate(t.Context(), s.db))
	redis.Serve(t, 2)
	var err error
	s.client, err = producer.New(producer.Config{Redis: redis.Client, Prefix: redis.Prefix})
	check.OK(t, err)
	return s
}

// pick returns the text for the kind of database.
func (s *sandbox) pick(postgres, mariadb string) string {
	if s.kind == dbtest.MariaDB {
		return mariadb
	}
	return postgres
}

// relay runs a relay until the test ends. It polls often unless it listens.
func (s *sandbox) relay(change ...func(*Relay)) {
	s.t.Helper()
	r := Relay{Dialect: s.w.Dialect, DB: s.db, Client: s.client, Poll: 5 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(s.log, nil))}
	for _, f := range change {
		f(&r)
	}
	check.Background(s.t, "the relay", r.Run)
}

// listens lets the relay wait for notifications only. MariaDB has none.
func (s *sandbox) listens(r *Relay) {
	if s.kind == dbtest.MariaDB {
		return
	}
	r.Listener, r.Poll = pgxlisten.Listener{DB: s.db}, time.Hour
}

// commit executes change in a transaction and commits it.
func (s *sandbox) commit(change func(Tx) error) {
	s.t.Helper()
	check.OK(s.t, inTx(s.t.Context(), s.db, nil, func(tx *sql.Tx) error { return change(tx) }))
}

// schedule commits a task that is due in an hour.
func (s *sandbox) schedule(id string) {
	s.t.Helper()
	s.commit(func(tx Tx) error { return s.w.Schedule(s.t.Context(), tx, inAnHour(id)) })
}

func inAnHour(id string) producer.Request {
	return producer.Request{Topic: orders, ID: id, When: producer.In(time.Hour), Payload: []byte(id)}
}

// drained waits until the outbox has no row that waits for the relay.
func (s *sandbox) drained() {
	s.t.Helper()
	check.Until(s.t, "an empty outbox", func() bool { return s.rows("failed IS NULL") == 0 })
}

func (s *sandbox) rows(condition string) int {
	s.t.Helper()
	return dbtest.Value[int](s.t, s.db, "SELECT count(*) FROM duefleet_outbox WHERE "+condition)
}

// stored returns the stored task of an ID.
func (s *sandbox) stored(id string) producer.Stored {
	s.t.Helper()
	stored, err := s.client.Get(s.t.Context(), orders, id)
	check.OK(s.t, err)
	return stored
}

// is ends the test unless there is a task, or none.
func (s *sandbox) is(id string, there bool) {
	s.t.Helper()
	_, err := s.client.Get(s.t.Context(), orders, id)
	want := "<nil>"
	if !there {
		want = fmt.Sprintf("topic orders, ID %q: %v", id, task.ErrNotFound)
	}
	check.Equal(s.t, id, fmt.Sprint(err), want)
}
