// Package pgtest gives tests their databases, on one PostgreSQL server for a test binary.
package pgtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// Args are arguments of the server. Set them before the first test needs it.
var Args []string //nolint:gochecknoglobals // a test binary has one server

// started is the server, nil until a test needs it.
var started *servers.Postgres //nolint:gochecknoglobals // a test binary has one server

//nolint:gochecknoglobals // a test binary has one server
var server = sync.OnceValues(func() (running *servers.Postgres, err error) {
	started, err = servers.StartPostgres(context.Background(), Args...)
	return started, err
})

// Main runs the tests, ends the server, and exits.
func Main(m *testing.M) {
	code := servertest.Leaks(m)
	if started != nil {
		_ = started.Close(context.Background())
	}
	os.Exit(code)
}

// Database creates an empty database and returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	servertest.Need(t, "postgres", "initdb", "pg_isready")
	running, err := server()
	check.OK(t, err)
	name := strings.ToLower(rand.Text())
	Exec(t, Open(t, running.URL()), `CREATE DATABASE "`+name+`"`)
	u, err := url.Parse(running.URL())
	check.OK(t, err)
	u.Path = name
	return u.String()
}

// Open opens a database until the test ends.
func Open(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	check.OK(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Exec executes a statement.
func Exec(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement, args...)
	check.OK(t, err)
}

// Value returns the one value that a query returns.
func Value[T any](t testing.TB, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	check.OK(t, db.QueryRowContext(t.Context(), query, args...).Scan(&v))
	return v
}
