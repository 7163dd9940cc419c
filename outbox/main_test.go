package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/duefleet/duefleet/outbox/pgxlisten"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

const orders = fixture.Orders

func TestMain(m *testing.M) {
	code := servertest.Leaks(m)
	if started != nil {
		_ = started.Close(context.Background())
	}
	os.Exit(code)
}

// started is the server that the tests share, nil until one needs it.
var started *servers.Postgres

// serverArgs are arguments of that server.
var serverArgs []string

var sharedPostgres = sync.OnceValues(func() (server *servers.Postgres, err error) {
	started, err = servers.StartPostgres(context.Background(), serverArgs...)
	return started, err
})

// newDatabase creates an empty database and returns its URL.
func newDatabase(t testing.TB) string {
	t.Helper()
	servertest.Need(t, "postgres", "initdb", "pg_isready")
	server, err := sharedPostgres()
	check.OK(t, err)
	name := strings.ToLower(rand.Text())
	exec(t, open(t, server.URL()), `CREATE DATABASE "`+name+`"`)
	u, err := url.Parse(server.URL())
	check.OK(t, err)
	u.Path = name
	return u.String()
}

func open(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	check.OK(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func exec(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement, args...)
	check.OK(t, err)
}

// value returns the one value that a query returns.
func value[T any](t testing.TB, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	check.OK(t, db.QueryRowContext(t.Context(), query, args...).Scan(&v))
	return v
}

// sandbox is a database with an outbox, and a Redis with the topic orders.
type sandbox struct {
	t      testing.TB
	url    string
	db     *sql.DB
	redis  *fixture.Redis
	client *producer.Client
	log    *wait.Log
}

func newSandbox(t testing.TB) *sandbox {
	t.Helper()
	return newSandboxAt(t, fixture.New(t))
}

func newSandboxAt(t testing.TB, redis *fixture.Redis) *sandbox {
	t.Helper()
	s := &sandbox{t: t, url: newDatabase(t), redis: redis, log: &wait.Log{}}
	s.db = open(t, s.url)
	check.OK(t, Migrate(t.Context(), s.db))
	redis.Serve(t, 2)
	var err error
	s.client, err = producer.New(producer.Config{Redis: redis.Client, Prefix: redis.Prefix})
	check.OK(t, err)
	return s
}

// relay runs a relay until the test ends. It polls often unless it listens.
func (s *sandbox) relay(change ...func(*Relay)) {
	s.t.Helper()
	r := Relay{DB: s.db, Client: s.client, Poll: 5 * time.Millisecond, Log: slog.New(slog.NewTextHandler(s.log, nil))}
	for _, f := range change {
		f(&r)
	}
	wait.Background(s.t, "the relay", r.Run)
}

// listens lets the relay wait for notifications only.
func (s *sandbox) listens(r *Relay) {
	r.Listener, r.Poll = pgxlisten.Listener{DB: s.db}, time.Hour
}

// commit executes change in a transaction and commits it.
func (s *sandbox) commit(change func(Tx) error) {
	s.t.Helper()
	check.OK(s.t, inTx(s.t.Context(), s.db, func(tx *sql.Tx) error { return change(tx) }))
}

// schedule commits a task that is due in an hour.
func (s *sandbox) schedule(id string) {
	s.t.Helper()
	s.commit(func(tx Tx) error { return Schedule(s.t.Context(), tx, inAnHour(id)) })
}

func inAnHour(id string) producer.Request {
	return producer.Request{Topic: orders, ID: id, When: producer.In(time.Hour), Payload: []byte(id)}
}

// drained waits until the outbox has no row that waits for the relay.
func (s *sandbox) drained() {
	s.t.Helper()
	wait.For(s.t, "an empty outbox", func() bool { return s.rows("failed IS NULL") == 0 })
}

func (s *sandbox) rows(condition string) int {
	s.t.Helper()
	return value[int](s.t, s.db, "SELECT count(*) FROM duefleet_outbox WHERE "+condition)
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
