package task

import (
	"fmt"
	"time"
)

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

// CheckWhen returns a RuleError if CheckDue refuses the due time as seen from now. It
// also refuses the zero When, At of the zero time, and At of a value that looks like Unix
// seconds.
func CheckWhen(w When, now time.Time) error {
	switch {
	case w.IsZero():
		return forgotten("no time")
	case w.kind == whenAt && w.millis == time.Time{}.UnixMilli():
		return forgotten("the zero time.Time")
	case w.kind == whenAt && LooksLikeSeconds(w.millis):
		rule := fmt.Sprintf("looks like Unix seconds that were taken for milliseconds; want time.Unix(%d, 0)", w.millis)
		return &RuleError{"due", rule, time.UnixMilli(w.millis).UTC().Format(time.RFC3339)}
	}
	return CheckDue(w.Time(now), now)
}

func forgotten(got string) error { return &RuleError{"due", "must be given; Now() is due now", got} }

// LooksLikeSeconds reports whether a number given as Unix milliseconds is probably Unix
// seconds of 2001 to 2099. As milliseconds it lies in January or February 1970, where no
// task is due.
func LooksLikeSeconds(millis int64) bool { return millis >= 1_000_000_000 && millis <= 4_100_000_000 }
