package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"
)

// Commits notify only while a relay is asleep, because each notification is dear. The order
// of falling asleep: declare it, look again, sleep. A transaction that inserts after the
// declaration notifies. One that inserted before it doesn't, and may commit after the second
// look. So the relay looks again after 1 ms, 2 ms, 4 ms and so on, up to Poll. A row that is
// committed some time after the declaration is seen within about as long again.
const (
	firstGap = time.Millisecond
	// awakeGap is the longest gap between two looks of a relay that isn't asleep. A
	// longer silence makes it fall asleep.
	awakeGap = 8 * time.Millisecond
	// lockBatch is the largest number of locks that are removed at once.
	lockBatch = 1000
)

// session is the one connection that a relay works on, and how it waits there.
type session struct {
	statements statements
	db         *sql.DB
	conn       *sql.Conn // nil until it is needed
	asleep     bool      // conn holds the lock for which the trigger looks
	gap        time.Duration
	tidied     time.Time // when locks were removed last
}

// inTx is like the function inTx, on the connection of the session.
func (s *session) inTx(ctx context.Context, change func(*sql.Tx) error) error {
	if s.conn == nil {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		s.conn = conn
	}
	return inTx(ctx, s.conn, s.statements.relaying, change)
}

// removeLocks removes old locks each second, at most lockBatch. If there may be more, the
// next look goes on.
func (s *session) removeLocks(ctx context.Context) error {
	if s.statements.removeLocks == "" || time.Since(s.tidied) < time.Second {
		return nil
	}
	return s.inTx(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, s.statements.removeLocks, lockBatch)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == lockBatch {
			return err
		}
		s.tidied = time.Now()
		return nil
	})
}

// next returns the time until the next look, after one that found nothing. It falls asleep
// if commits can wake it, and then returns 0 once.
func (s *session) next(ctx context.Context, listening bool, poll time.Duration) (time.Duration, error) {
	if !s.asleep && listening && s.gap >= awakeGap {
		s.gap, s.asleep = 0, true
		_, err := s.conn.ExecContext(ctx, s.statements.fallAsleep)
		return 0, err
	}
	s.gap = min(max(2*s.gap, firstGap), poll)
	return s.gap, nil
}

// wakeUp ends the sleep. From then on commits don't notify.
func (s *session) wakeUp(ctx context.Context) error {
	s.gap = 0
	if !s.asleep {
		return nil
	}
	s.asleep = false
	_, err := s.conn.ExecContext(ctx, s.statements.wakeUp)
	return err
}

// end closes the connection. The pool must not lend it, because it may hold the lock.
func (s *session) end() {
	if s.conn != nil {
		_ = s.conn.Raw(func(any) error { return driver.ErrBadConn }) // which closes it
		_ = s.conn.Close()
	}
	s.conn, s.asleep, s.gap = nil, false, 0
}
