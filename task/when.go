package task

import (
	"math"
	"time"
)

// When is a due time: Now, In a delay, or At an instant. The zero value breaks a rule, so
// that a forgotten due time doesn't mean now. Wait and Instant say which of them it is, for
// example to a fake of a producer in a test.
type When struct {
	kind whenKind
	// n is Unix ms of At, and the delay of In in ns.
	n int64
}

type whenKind uint8

const (
	whenNone whenKind = iota
	whenNow
	whenIn
	whenAt
)

// Now means due at once.
func Now() When { return When{kind: whenNow} }

// In means d from now by the clock of the Redis that stores the task. d is cut to the
// millisecond, and at most MaxAhead. A negative d means due now. 0 breaks a rule, and so does
// less than a millisecond: In(30) is 30 nanoseconds. For a moment that may be near, use At
// instead of In(time.Until(moment)).
func In(d time.Duration) When { return When{whenIn, int64(d)} }

// At means the instant t, cut to the millisecond, at most MaxAhead from now. A time in the
// past means due now.
//
// A time before 1971 breaks a rule. Such a time was mostly never set: the zero time.Time,
// time.Unix(0, 0), or Unix seconds that were given to time.UnixMilli.
func At(t time.Time) When {
	const most = math.MaxInt64/1000 - 1 // seconds: beyond them UnixMilli overflows
	switch s := t.Unix(); {
	case s > most:
		return When{whenAt, math.MaxInt64}
	case s < -most:
		return When{whenAt, math.MinInt64}
	}
	return When{whenAt, t.UnixMilli()}
}

// IsZero reports whether w is the zero value, which is no due time.
func (w When) IsZero() bool { return w.kind == whenNone }

// Time returns the due time of a task that is stored at now. It returns the zero time for
// the zero When.
func (w When) Time(now time.Time) time.Time {
	if wait, relative := w.Wait(); relative {
		return now.Add(wait)
	}
	at, _ := w.Instant()
	return at
}

// Wait returns the delay of In, or 0 for Now. It returns false for At and the zero When.
func (w When) Wait() (d time.Duration, relative bool) {
	if w.kind != whenIn {
		return 0, w.kind == whenNow
	}
	return time.Duration(w.n).Truncate(time.Millisecond), true
}

// Instant returns the time of At. It returns false for Now, In and the zero When.
func (w When) Instant() (t time.Time, absolute bool) {
	if w.kind != whenAt {
		return time.Time{}, false
	}
	return time.UnixMilli(w.n), true
}

func (w When) String() string {
	if wait, relative := w.Wait(); relative {
		return "in " + wait.String()
	}
	if at, absolute := w.Instant(); absolute {
		return "at " + at.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	return "no time"
}
