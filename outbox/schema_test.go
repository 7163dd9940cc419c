package outbox

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/test/check"
)

// TestTheSchemaIsChecked: programs and relays get the same clear error.
func TestTheSchemaIsChecked(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		statement string
		want      error
	}{
		"no table": {`DROP TABLE duefleet_outbox_schema, duefleet_outbox`, ErrNoTable},
		"older":    {`UPDATE duefleet_outbox_schema SET version = version - 1`, ErrOlderSchema},
		"newer":    {`UPDATE duefleet_outbox_schema SET version = version + 1`, ErrNewerSchema},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sandbox) {
				d := s.w.Dialect
				check.OK(t, d.Check(t.Context(), s.db))
				dbtest.Exec(t, s.db, row.statement)
				for by, err := range map[string]error{
					"Check": d.Check(t.Context(), s.db), "Run": Relay{Dialect: d, DB: s.db, Client: s.client}.Run(check.Context(t)),
				} {
					if !errors.Is(err, row.want) {
						t.Errorf("%s: %v, want %v", by, err, row.want)
					}
				}
			})
		})
	}
}

// TestAColumnIsMissing: the INSERT of a program whose library is newer than the schema.
func TestAColumnIsMissing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		dbtest.Exec(t, s.db, `ALTER TABLE duefleet_outbox DROP COLUMN reply_to`)
		tx, err := s.db.BeginTx(t.Context(), nil)
		check.OK(t, err)
		defer tx.Rollback() //nolint:errcheck // it only ends the transaction
		if err := s.w.Schedule(t.Context(), tx, inAnHour("o-1")); !errors.Is(err, ErrOlderSchema) {
			t.Errorf("Schedule: %v, want %v", err, ErrOlderSchema)
		}
	})
}

// TestMissingRights: a user without any right, and one with the rights of an application,
// which can't relay.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sandbox) {
		app, name := s.user()
		tx, err := app.BeginTx(t.Context(), nil)
		check.OK(t, err)
		for by, err := range map[string]error{
			"Schedule": s.w.Schedule(t.Context(), tx, inAnHour("o-1")), "Check": s.w.Dialect.Check(t.Context(), app),
		} {
			if !errors.Is(err, ErrRights) {
				t.Errorf("%s: %v, want %v", by, err, ErrRights)
			}
		}
		check.OK(t, tx.Rollback())
		dbtest.Exec(t, s.db, `GRANT INSERT ON duefleet_outbox TO `+name)
		if s.kind == dbtest.PostgreSQL {
			dbtest.Exec(t, s.db, `GRANT USAGE ON SEQUENCE duefleet_outbox_seq TO `+name)
		}
		dbtest.Exec(t, s.db, `GRANT SELECT ON duefleet_outbox_schema TO `+name)
		check.OK(t, s.w.Dialect.Check(t.Context(), app))
		tx, err = app.BeginTx(t.Context(), nil)
		check.OK(t, err)
		check.OK(t, s.w.Schedule(t.Context(), tx, inAnHour("o-1")))
		check.OK(t, tx.Commit())
		relay := Relay{Dialect: s.w.Dialect, DB: app, Client: s.client}
		if err := relay.Run(check.Context(t)); !errors.Is(err, ErrRights) {
			t.Errorf("Run: %v, want %v", err, ErrRights)
		}
		dbtest.Exec(t, s.db, `GRANT SELECT, UPDATE, DELETE ON duefleet_outbox TO `+name)
		if s.kind == dbtest.MariaDB {
			dbtest.Exec(t, s.db, `GRANT SELECT, UPDATE, DELETE ON duefleet_outbox_id TO `+name)
		}
		s.relay(func(r *Relay) { r.DB = app })
		s.drained()
		s.is("o-1", true)
	})
}

// TestTheRightsOfMariaDB: the file grants what an application and a relay need.
func TestTheRightsOfMariaDB(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, dbtest.MariaDB)
	rights, err := os.ReadFile("mariadb/rights/rights.sql")
	check.OK(t, err)
	users := map[string]*sql.DB{}
	grants := string(rights)
	for _, role := range []string{"app", "relay", "consumer"} {
		name := role + "_" + strings.ToLower(rand.Text())[:16]
		dbtest.Exec(t, s.db, `CREATE USER `+name)
		users[role] = dbtest.Open(t, name+strings.TrimPrefix(s.url, "root"))
		grants = regexp.MustCompile(`(TO |, )`+role+`\b`).ReplaceAllString(grants, "${1}"+name)
	}
	conn, err := s.db.Conn(t.Context())
	check.OK(t, err)
	defer conn.Close()
	_, err = single{conn}.ExecContext(t.Context(), grants)
	check.OK(t, err)
	check.OK(t, MariaDB.Check(t.Context(), users["app"]))
	check.OK(t, inTx(t.Context(), users["app"], nil, func(tx *sql.Tx) error {
		return s.w.Schedule(t.Context(), tx, inAnHour("o-1"))
	}))
	s.relay(func(r *Relay) { r.DB = users["relay"] })
	s.drained()
	s.is("o-1", true)
}

// user makes a user without rights on the outbox.
func (s *sandbox) user() (db *sql.DB, name string) {
	s.t.Helper()
	if s.kind == dbtest.MariaDB {
		name = "app_" + strings.ToLower(rand.Text())[:16]
		dbtest.Exec(s.t, s.db, `CREATE USER `+name)
		dbtest.Exec(s.t, s.db, `CREATE TABLE other (id int)`)
		dbtest.Exec(s.t, s.db, `GRANT SELECT ON other TO `+name) // it may use the database
		return dbtest.Open(s.t, name+strings.TrimPrefix(s.url, "root")), name
	}
	u, err := url.Parse(s.url)
	check.OK(s.t, err)
	name = "app_" + strings.TrimPrefix(u.Path, "/")
	dbtest.Exec(s.t, s.db, `CREATE ROLE `+name+` LOGIN`)
	u.User = url.User(name)
	return dbtest.Open(s.t, u.String()), name
}

// TestMigrateTwiceAtOnce: programs that start together all migrate.
func TestMigrateTwiceAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, kind dbtest.Kind) {
		db, d := dbtest.Open(t, dbtest.Database(t, kind)), dialect(kind)
		var migrating sync.WaitGroup
		for range 4 {
			migrating.Go(func() {
				if err := d.Migrate(t.Context(), db); err != nil {
					t.Error(err)
				}
			})
		}
		migrating.Wait()
		check.OK(t, d.Check(t.Context(), db))
		dbtest.Exec(t, db, `UPDATE duefleet_outbox_schema SET version = version + 1`)
		if err := d.Migrate(t.Context(), db); !errors.Is(err, ErrNewerSchema) {
			t.Errorf("Migrate: %v, want %v", err, ErrNewerSchema)
		}
	})
}

// TestAMigrationThatBrokeOffIsRepeated: MariaDB keeps what its statements made before.
func TestAMigrationThatBrokeOffIsRepeated(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, dbtest.MariaDB)
	s.schedule("kept")
	dbtest.Exec(t, s.db, `DROP TABLE duefleet_outbox_schema`)
	check.OK(t, MariaDB.Migrate(t.Context(), s.db))
	dbtest.Exec(t, s.db, `UPDATE duefleet_outbox_schema SET version = 1`)
	check.OK(t, MariaDB.Migrate(t.Context(), s.db))
	s.relay()
	s.drained()
	s.is("kept", true)
}
