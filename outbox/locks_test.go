package outbox

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/test/check"
)

// ahead opens a MariaDB whose clock stands still, ahead of the machine's.
func (s *sandbox) ahead(by time.Duration) *sql.DB {
	s.t.Helper()
	return dbtest.Open(s.t, fmt.Sprintf("%s?timestamp=%d", s.url, time.Now().Add(by).Unix()))
}

// TestOldLocksAreRemoved: the table of the locks must not grow for ever. The locks of open
// transactions stay, although they are old, and the relay doesn't wait for them.
func TestOldLocksAreRemoved(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, dbtest.MariaDB)
	for _, id := range []string{"b", "c", "a-open"} {
		s.schedule(id)
	}
	dbtest.Exec(t, s.db, `UPDATE duefleet_outbox_id SET used_at = used_at - INTERVAL 1 HOUR`)
	s.schedule("new")
	open, err := s.ahead(-time.Hour).BeginTx(t.Context(), nil)
	check.OK(t, err)
	check.OK(t, s.w.Schedule(t.Context(), open, inAnHour("a-open")))
	check.OK(t, s.w.Schedule(t.Context(), open, inAnHour("d-open")))
	s.relay()
	locks := func() string {
		return dbtest.Value[string](t, s.db, `SELECT group_concat(id ORDER BY id) FROM duefleet_outbox_id`)
	}
	waits := false
	check.Until(t, "the removal of old locks", func() bool {
		waits = waits || dbtest.Waiting(t, s.db) > 0
		return locks() == "a-open,new"
	})
	check.Equal(t, "the relay waits", waits, false)
	waiting := make(chan error, 2)
	for _, id := range []string{"a-open", "d-open"} {
		go func() {
			waiting <- inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error { return s.w.Cancel(t.Context(), tx, orders, id) })
		}()
	}
	check.Until(t, "transactions that wait", func() bool { return dbtest.Waiting(t, s.db) == 2 })
	check.OK(t, open.Commit())
	check.OK(t, check.Receive(t, "a cancel", waiting))
	check.OK(t, check.Receive(t, "the other cancel", waiting))
	s.drained()
	s.is("a-open", false)
	s.is("d-open", false)
	check.Equal(t, "the locks", locks(), "a-open,d-open,new")
}

// TestTheOrderHoldsWhileLocksAreRemoved: all locks are old, and relays remove them as fast as
// they can. At most one open transaction has a number for an ID.
func TestTheOrderHoldsWhileLocksAreRemoved(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, dbtest.MariaDB)
	past, ctx := s.ahead(-time.Hour), check.Context(t)
	var running sync.WaitGroup
	var removed, overlaps atomic.Int64
	var inside [8]atomic.Int64
	remove := func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, MariaDB.statements().removeLocks, lockBatch)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		removed.Add(n)
		return err
	}
	schedule := func(tx *sql.Tx) error {
		id := rand.IntN(len(inside))
		if err := s.w.Schedule(ctx, tx, inAnHour(fmt.Sprint(id))); err != nil {
			return err
		}
		if inside[id].Add(1) > 1 {
			overlaps.Add(1)
		}
		_, err := tx.ExecContext(ctx, `DO SLEEP(0.002)`)
		inside[id].Add(-1)
		return err
	}
	for range 3 {
		running.Go(func() {
			for removed.Load() < 30 && !t.Failed() {
				if err := inTx(ctx, s.db, MariaDB.statements().relaying, remove); err != nil {
					t.Error("a relay:", err)
				}
				dbtest.Exec(t, s.db, `DO SLEEP(0.001)`)
			}
		})
		running.Go(func() {
			for removed.Load() < 30 && !t.Failed() {
				if err := inTx(ctx, past, nil, schedule); err != nil {
					t.Error("a writer:", err)
				}
				dbtest.Exec(t, past, `DO SLEEP(0.002)`)
			}
		})
	}
	running.Wait()
	check.Equal(t, "transactions at once", overlaps.Load(), 0)
}

// TestTransactionsThatNameANewID wait for the first of them. If it is rolled back and several
// waited, MariaDB ends some with a deadlock. Each succeeds when it is repeated.
func TestTransactionsThatNameANewID(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		waiting   int
		end       func(*sql.Tx) error
		deadlocks bool
		rows      int
	}{
		"committed":            {5, (*sql.Tx).Commit, false, 6},
		"rolled back, one":     {1, (*sql.Tx).Rollback, false, 1},
		"rolled back, several": {5, (*sql.Tx).Rollback, true, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t, dbtest.MariaDB)
			schedule := func(tx *sql.Tx) error { return s.w.Schedule(t.Context(), tx, inAnHour("new")) }
			first, err := s.db.BeginTx(t.Context(), nil)
			check.OK(t, err)
			check.OK(t, schedule(first))
			results := make(chan error, test.waiting)
			var deadlocks atomic.Int64
			for range test.waiting {
				go func() {
					err := inTx(t.Context(), s.db, nil, schedule)
					for isDeadlock(err) {
						deadlocks.Add(1)
						err = inTx(t.Context(), s.db, nil, schedule)
					}
					results <- err
				}()
			}
			check.Until(t, "transactions that wait", func() bool { return dbtest.Waiting(t, s.db) == test.waiting })
			check.OK(t, test.end(first))
			for range test.waiting {
				check.OK(t, check.Receive(t, "a result", results))
			}
			check.Equal(t, "deadlocks", deadlocks.Load() > 0, test.deadlocks)
			check.Equal(t, "rows", s.rows("true"), test.rows)
		})
	}
}

func isDeadlock(err error) bool {
	var number *mysql.MySQLError
	return errors.As(err, &number) && number.Number == 1213
}
