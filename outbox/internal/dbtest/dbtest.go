// Package dbtest gives tests their databases, on one PostgreSQL and one MariaDB server for a
// test binary.
package dbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// Kind is a kind of database. Its value is the name of its driver.
type Kind string

// The kinds of database.
const (
	PostgreSQL Kind = "pgx"
	MariaDB    Kind = "mysql"
)

// Each runs a test on each kind of database.
func Each(t *testing.T, test func(t *testing.T, kind Kind)) {
	t.Helper()
	for name, kind := range map[string]Kind{"PostgreSQL": PostgreSQL, "MariaDB": MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// Args are arguments of the servers. Set them before the first test needs the server.
var Args = map[Kind][]string{} //nolint:gochecknoglobals // a test binary has one server of a kind

// started are the servers that tests needed.
var (
	startedPostgres *servers.Postgres //nolint:gochecknoglobals // a test binary has one server of a kind
	startedMariaDB  *servers.MariaDB  //nolint:gochecknoglobals // a test binary has one server of a kind
)

//nolint:gochecknoglobals // a test binary has one server of a kind
var (
	postgres = sync.OnceValues(func() (running *servers.Postgres, err error) {
		startedPostgres, err = servers.StartPostgres(context.Background(), Args[PostgreSQL]...)
		return startedPostgres, err
	})
	mariadb = sync.OnceValues(func() (running *servers.MariaDB, err error) {
		startedMariaDB, err = servers.StartMariaDB(context.Background(), Args[MariaDB]...)
		return startedMariaDB, err
	})
)

// Main runs the tests, ends the servers, and exits.
func Main(m *testing.M) {
	code := servertest.Leaks(m)
	var err error
	if startedPostgres != nil {
		err = startedPostgres.Close(context.Background())
	}
	if startedMariaDB != nil {
		err = errors.Join(err, startedMariaDB.Close(context.Background()))
	}
	_ = err // the tests are over
	os.Exit(code)
}

// Database creates an empty database and returns its URL, or its DSN for MariaDB.
func Database(t testing.TB, kind Kind) string {
	t.Helper()
	name := strings.ToLower(rand.Text())
	if kind == MariaDB {
		servertest.Need(t, "mariadbd", "mariadb-install-db", "mariadb-admin")
		running, err := mariadb()
		check.OK(t, err)
		Exec(t, Open(t, running.DSN("")), "CREATE DATABASE `"+name+"`")
		return running.DSN(name)
	}
	servertest.Need(t, "postgres", "initdb", "pg_isready")
	running, err := postgres()
	check.OK(t, err)
	Exec(t, Open(t, running.URL()), `CREATE DATABASE "`+name+`"`)
	u, err := url.Parse(running.URL())
	check.OK(t, err)
	u.Path = name
	return u.String()
}

// Open opens a database until the test ends.
func Open(t testing.TB, url string) *sql.DB {
	t.Helper()
	kind := MariaDB
	if strings.HasPrefix(url, "postgres://") {
		kind = PostgreSQL
	}
	db, err := sql.Open(string(kind), url)
	check.OK(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

var (
	numbered = regexp.MustCompile(`\$\d`)
	threadID = regexp.MustCompile(`\nMariaDB thread id (\d+)`)
)

// SQL returns a statement for a database. Its arguments are $1, $2 and so on, in this order.
func SQL(db *sql.DB, statement string) string {
	if _, ok := db.Driver().(*mysql.MySQLDriver); ok {
		return numbered.ReplaceAllString(statement, "?")
	}
	return statement
}

// Waiting returns the number of transactions of a database that wait for a lock.
func Waiting(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	if _, ok := db.Driver().(*mysql.MySQLDriver); !ok {
		return Value[int](t, db, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	}
	// The table innodb_trx isn't up to date while tests read it more often than each 100 ms.
	var engine, name, status string
	check.OK(t, db.QueryRowContext(t.Context(), `SHOW ENGINE INNODB STATUS`).Scan(&engine, &name, &status))
	for _, transaction := range strings.Split(status, "---TRANSACTION ")[1:] {
		thread := threadID.FindStringSubmatch(transaction)
		if thread == nil || !strings.Contains(transaction, "\nLOCK WAIT ") {
			continue
		}
		n += Value[int](t, db, `SELECT count(*) FROM information_schema.processlist
			WHERE id = $1 AND db = DATABASE()`, thread[1])
	}
	return n
}

// Exec executes a statement; see SQL.
func Exec(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), SQL(db, statement), args...)
	check.OK(t, err)
}

// Value returns the one value that a query returns; see SQL.
func Value[T any](t testing.TB, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	check.OK(t, db.QueryRowContext(t.Context(), SQL(db, query), args...).Scan(&v))
	return v
}
