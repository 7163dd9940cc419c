package outbox

import (
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/duefleet/duefleet/outbox/internal/pgtest"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/wait"
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
			s := newSandbox(t)
			check.OK(t, Check(t.Context(), s.db))
			pgtest.Exec(t, s.db, row.statement)
			for by, err := range map[string]error{
				"Check": Check(t.Context(), s.db), "Run": Relay{DB: s.db, Client: s.client}.Run(wait.Context(t)),
			} {
				if !errors.Is(err, row.want) {
					t.Errorf("%s: %v, want %v", by, err, row.want)
				}
			}
		})
	}
}

// TestMissingRights: a user without any right, and one with the rights of an application,
// which can't relay.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	u, err := url.Parse(s.url)
	check.OK(t, err)
	name := "app_" + strings.TrimPrefix(u.Path, "/")
	pgtest.Exec(t, s.db, `CREATE ROLE `+name+` LOGIN`)
	u.User = url.User(name)
	app := pgtest.Open(t, u.String())
	tx, err := app.BeginTx(t.Context(), nil)
	check.OK(t, err)
	for by, err := range map[string]error{
		"Schedule": Schedule(t.Context(), tx, inAnHour("o-1")), "Check": Check(t.Context(), app),
	} {
		if !errors.Is(err, ErrRights) {
			t.Errorf("%s: %v, want %v", by, err, ErrRights)
		}
	}
	check.OK(t, tx.Rollback())
	pgtest.Exec(t, s.db, `GRANT INSERT ON duefleet_outbox TO `+name)
	pgtest.Exec(t, s.db, `GRANT USAGE ON SEQUENCE duefleet_outbox_seq TO `+name)
	pgtest.Exec(t, s.db, `GRANT SELECT ON duefleet_outbox_schema TO `+name)
	check.OK(t, Check(t.Context(), app))
	tx, err = app.BeginTx(t.Context(), nil)
	check.OK(t, err)
	check.OK(t, Schedule(t.Context(), tx, inAnHour("o-1")))
	check.OK(t, tx.Commit())
	relay := Relay{DB: app, Client: s.client}
	if err := relay.Run(wait.Context(t)); !errors.Is(err, ErrRights) {
		t.Errorf("Run: %v, want %v", err, ErrRights)
	}
	pgtest.Exec(t, s.db, `GRANT SELECT, UPDATE, DELETE ON duefleet_outbox TO `+name)
	s.relay(func(r *Relay) { r.DB = app })
	s.drained()
	s.is("o-1", true)
}

// TestMigrateTwiceAtOnce: programs that start together all migrate.
func TestMigrateTwiceAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t, pgtest.Database(t))
	var migrating sync.WaitGroup
	for range 4 {
		migrating.Go(func() {
			if err := Migrate(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	migrating.Wait()
	check.OK(t, Check(t.Context(), db))
	pgtest.Exec(t, db, `UPDATE duefleet_outbox_schema SET version = version + 1`)
	if err := Migrate(t.Context(), db); !errors.Is(err, ErrNewerSchema) {
		t.Errorf("Migrate: %v, want %v", err, ErrNewerSchema)
	}
}
