//go:build measure

package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/outbox/internal/dbtest"
	"github.com/duefleet/duefleet/test/check"
)

const (
	span = 10 * time.Second
	rate = 500 // commits a second
)

// durable makes the servers write each commit to the disk, as in production.
func durable() {
	dbtest.Args = map[dbtest.Kind][]string{
		dbtest.PostgreSQL: {"-c", "fsync=on"}, dbtest.MariaDB: {"--innodb-flush-log-at-trx-commit=1"},
	}
}

// TestMeasureCommitToStored: 500 commits a second reach Redis soon after the commit. A bare
// INSERT before and after it shows how busy the machine is: compare p99 with its p99.
func TestMeasureCommitToStored(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	durable()
	for _, kind := range []dbtest.Kind{dbtest.PostgreSQL, dbtest.MariaDB} {
		t.Run(dialect(kind).String(), func(t *testing.T) {
			s := newSandbox(t, kind)
			s.plain()
			bare := func() { s.paced("a bare INSERT", 0, s.insertPlain) }
			bare()
			s.relay(s.listens, s.defaultPoll)
			committed := s.paced("an INSERT into the outbox", 1, func(tx *sql.Tx, id string) error {
				return s.w.Schedule(t.Context(), tx, inAnHour(id))
			})
			s.drained()
			bare()
			var took []time.Duration
			for id, at := range committed {
				took = append(took, s.stored(id).Scheduled.Sub(at))
			}
			p50, p99 := s.quantiles("from the call of Commit to Redis", took)
			if p50 > 10*time.Millisecond || p99 > 50*time.Millisecond {
				t.Errorf("p50 %s, p99 %s; want at most 10 ms and 50 ms", p50, p99)
			}
		})
	}
}

// defaultPoll lets a relay on MariaDB poll as it does by default.
func (s *sandbox) defaultPoll(r *Relay) {
	if s.kind == dbtest.MariaDB {
		r.Poll = 0
	}
}

// TestMeasureWhatTheLockCosts: like TestMeasureWhatTheTriggerCosts, for MariaDB.
func TestMeasureWhatTheLockCosts(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	durable()
	s := newSandbox(t, dbtest.MariaDB)
	s.plain()
	for _, writers := range []int{1, 8, 32} {
		for range 2 {
			s.closed("bare", writers, s.insertPlain)
			s.closed("the triggers", writers, func(tx *sql.Tx, id string) error {
				return s.w.Schedule(t.Context(), tx, inAnHour(id))
			})
		}
	}
}

// TestMeasureWhatTheTriggerCosts: transactions of one INSERT, as fast as they go, with parts
// of the trigger. No relay runs, so the trigger itself doesn't notify.
func TestMeasureWhatTheTriggerCosts(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	durable()
	s := newSandbox(t, dbtest.PostgreSQL)
	s.plain()
	const (
		function = `CREATE OR REPLACE FUNCTION duefleet_outbox_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN %s NEW.seq := nextval('duefleet_outbox_seq'); NEW.inserted_at := clock_timestamp(); %s RETURN NEW; END $$`
		lock   = `PERFORM pg_advisory_xact_lock(hashtextextended(NEW.topic || '/' || NEW.id, 0));`
		notify = `PERFORM pg_notify('duefleet_outbox', '');`
	)
	whole := dbtest.Value[string](t, s.db, `SELECT pg_get_functiondef('duefleet_outbox_insert'::regproc)`)
	outbox := func(tx *sql.Tx, id string) error { return Schedule(t.Context(), tx, inAnHour(id)) }
	for _, writers := range []int{1, 8, 32} {
		for range 2 {
			s.closed("bare", writers, s.insertPlain)
			dbtest.Exec(t, s.db, fmt.Sprintf(function, "", ""))
			s.closed("neither", writers, outbox)
			dbtest.Exec(t, s.db, fmt.Sprintf(function, lock, ""))
			s.closed("lock", writers, outbox)
			dbtest.Exec(t, s.db, fmt.Sprintf(function, lock, notify))
			s.closed("lock and notification", writers, outbox)
			dbtest.Exec(t, s.db, whole)
			s.closed("the trigger", writers, outbox)
		}
	}
}

// plain makes a table like the outbox, without its trigger.
func (s *sandbox) plain() {
	dbtest.Exec(s.t, s.db, s.pick(
		`CREATE TABLE plain (seq bigserial PRIMARY KEY, topic text, id text, delay_ms bigint, payload bytea)`,
		`CREATE TABLE plain (seq bigint AUTO_INCREMENT PRIMARY KEY, topic text, id text, delay_ms bigint, payload blob)`))
}

func (s *sandbox) insertPlain(tx *sql.Tx, id string) error {
	_, err := tx.ExecContext(s.t.Context(),
		dbtest.SQL(s.db, `INSERT INTO plain (topic, id, delay_ms, payload) VALUES ($1, $2, 3600000, $3)`),
		orders, id, []byte(id))
	return err
}

// paced commits rate transactions a second from 16 goroutines. It returns when each ID's
// Commit was called.
func (s *sandbox) paced(what string, run int, change func(*sql.Tx, string) error) map[string]time.Time {
	s.db.SetMaxIdleConns(40)
	var (
		mu        sync.Mutex
		committed = map[string]time.Time{}
		took      []time.Duration
		writers   sync.WaitGroup
		next      atomic.Int64
	)
	ctx, cancel := context.WithTimeout(s.t.Context(), span)
	defer cancel()
	ticks := make(chan struct{}, rate)
	for range 16 {
		writers.Go(func() {
			for range ticks {
				id := fmt.Sprintf("%d-%d", run, next.Add(1))
				begun := time.Now()
				tx, err := s.db.BeginTx(s.t.Context(), nil)
				check.OK(s.t, err)
				check.OK(s.t, change(tx, id))
				at := time.Now()
				check.OK(s.t, tx.Commit())
				mu.Lock()
				committed[id] = at
				took = append(took, time.Since(begun))
				mu.Unlock()
			}
		})
	}
	ticker := time.NewTicker(time.Second / rate)
	defer ticker.Stop()
	for ctx.Err() == nil {
		<-ticker.C
		ticks <- struct{}{}
	}
	close(ticks)
	writers.Wait()
	s.t.Logf("%s: %d commits in %s", what, len(committed), span)
	s.quantiles("a transaction", took)
	return committed
}

func (s *sandbox) quantiles(what string, took []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(took)
	p50, p99 = took[len(took)/2], took[len(took)*99/100]
	s.t.Logf("%s: p50 %s, p99 %s, most %s", what, p50, p99, took[len(took)-1])
	return p50, p99
}

// closed commits transactions one after another from some goroutines, for 3 s.
func (s *sandbox) closed(what string, writers int, change func(*sql.Tx, string) error) {
	s.db.SetMaxIdleConns(40)
	var n atomic.Int64
	var wg sync.WaitGroup
	until := time.Now().Add(3 * time.Second)
	for range writers {
		wg.Go(func() {
			for time.Now().Before(until) {
				id := fmt.Sprintf("%s-%d", what, n.Add(1))
				check.OK(s.t, inTx(s.t.Context(), s.db, nil, func(tx *sql.Tx) error { return change(tx, id) }))
			}
		})
	}
	wg.Wait()
	s.t.Logf("%d writers, %s: %d commits/s", writers, what, n.Load()/3)
	for _, table := range []string{"duefleet_outbox", "plain"} {
		dbtest.Exec(s.t, s.db, `TRUNCATE `+table)
	}
}
