// Package duetime parses and formats due times as users write and read them.
package duetime

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// The accepted forms of a duration and of a time.
var (
	errDuration = errors.New("want a duration such as 30m, 1h30m, 500ms or 2d, of at most 100 years")

	errInstant = errors.New("want RFC 3339 with a zone, such as 2026-12-01T10:00:00Z, or Unix milliseconds, such as " +
		"1796119200000")
)

// Span parses a Go duration, which may begin with whole or fractional days: 2d, 1.5d,
// 1d12h, -2d.
func Span(s string) (time.Duration, error) {
	unsigned := strings.TrimLeft(s, "+-")
	days, rest, found := strings.Cut(unsigned, "d")
	if !found {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, errDuration
		}
		return d, nil
	}
	// The days are parsed as hours, the largest unit of time.ParseDuration, which also
	// detects an overflow.
	whole, err := time.ParseDuration(days + "h")
	if err != nil || len(s)-len(unsigned) > 1 || strings.ContainsAny(days, "hmsuµn+-") {
		return 0, errDuration
	}
	total := whole * 24
	if total/24 != whole {
		return 0, errDuration
	}
	if rest != "" {
		part, err := time.ParseDuration(rest)
		if err != nil || strings.ContainsAny(rest, "+-") || total+part < total {
			return 0, errDuration
		}
		total += part
	}
	if strings.HasPrefix(s, "-") {
		total = -total
	}
	return total, nil
}

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
