// Package duetime parses and formats durations and due times as users write and read them:
// in flags, configuration files, topic documents and lines of NDJSON.
package duetime

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/duefleet/duefleet/task"
)

// Format is RFC 3339 in UTC, to the millisecond, which is the resolution of due times.
const Format = "2006-01-02T15:04:05.000Z"

// Text returns a time in Format; "" for the zero time.
func Text(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(Format)
}

// Millis returns a time in Unix milliseconds; 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

var errInstant = errors.New("want RFC 3339 with a zone, such as 2026-12-01T10:00:00Z, or Unix milliseconds, such as " +
	"1796119200000")

// At parses RFC 3339 or Unix milliseconds. It refuses Unix seconds: as milliseconds
// they are far in the past, and the tasks would be delivered at once.
func At(s string) (time.Time, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		if task.LooksLikeSeconds(ms) {
			return time.Time{}, fmt.Errorf("looks like Unix seconds; want milliseconds: %d, or RFC 3339", ms*1000)
		}
		return time.UnixMilli(ms).UTC(), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, errInstant
	}
	return at.UTC(), nil
}
