package shard

import (
	"strconv"
	"time"

	"github.com/duefleet/duefleet/task"
)

// When is a due time on its way to Redis: absolute, or relative to the clock of
// the Redis that stores the task.
type When struct {
	millis   int64
	relative bool
}

// At returns the absolute time t, cut to the millisecond.
func At(t time.Time) When { return When{t.UnixMilli(), false} }

// In returns the time d after Redis's now, cut to the millisecond.
func In(d time.Duration) When { return When{d.Milliseconds(), true} }

// WhenOf returns the due time that w asks for; w must have passed task.CheckWhen.
func WhenOf(w task.When) When {
	if d, relative := w.Wait(); relative {
		return In(d)
	}
	return At(w.Time(time.Time{}))
}

// Time returns the due time as seen from now.
func (w When) Time(now time.Time) time.Time {
	if w.relative {
		return now.Add(time.Duration(w.millis) * time.Millisecond)
	}
	return time.UnixMilli(w.millis)
}

// MillisFrom returns the due time in ms as seen from now, in ms.
func (w When) MillisFrom(now int64) int64 { return w.Time(time.UnixMilli(now)).UnixMilli() }

func (w When) String() string {
	if w.relative && w.millis >= 0 {
		return "+" + strconv.FormatInt(w.millis, 10)
	}
	if w.relative {
		return "+0"
	}
	return strconv.FormatInt(w.millis, 10)
}
