package task

import "time"

// When is a due time: Now, In a delay, or At an instant. The zero value breaks a rule, so
// that a forgotten due time doesn't mean now.
type When struct {
	kind   whenKind
	millis int64 // At: Unix ms; In: ms from Redis's now
}

type whenKind uint8

const (
	whenNone whenKind = iota
	whenIn
	whenAt
)

// Now means due at once.
func Now() When { return In(0) }

// In means d from now by the clock of the Redis that stores the task, cut to the
// millisecond. 0 and a negative d mean due now.
func In(d time.Duration) When { return When{whenIn, d.Milliseconds()} }

// At means the instant t, cut to the millisecond, at most 100 years ahead. A time in the
// past means due now.
//
// The zero time.Time breaks a rule. So does an instant from 1970-01-12 to 1970-02-17:
// time.UnixMilli returns such an instant if it is given Unix seconds.
func At(t time.Time) When { return When{whenAt, t.UnixMilli()} }

// IsZero reports whether w is the zero value, which is no due time.
func (w When) IsZero() bool { return w.kind == whenNone }

// Time returns the due time of a task that is stored at now. It returns the zero time for
// the zero When.
func (w When) Time(now time.Time) time.Time {
	switch w.kind {
	case whenIn:
		return now.Add(w.wait())
	case whenAt:
		return time.UnixMilli(w.millis)
	}
	return time.Time{}
}

// Wait returns the delay of In, and false for a When that isn't relative.
func (w When) Wait() (d time.Duration, relative bool) {
	if w.kind != whenIn {
		return 0, false
	}
	return w.wait(), true
}

func (w When) wait() time.Duration { return time.Duration(w.millis) * time.Millisecond }

func (w When) String() string {
	switch w.kind {
	case whenIn:
		return "in " + w.wait().String()
	case whenAt:
		return "at " + time.UnixMilli(w.millis).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	return "no time"
}
