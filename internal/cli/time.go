package cli

import (
	"fmt"
	"time"
)

// TimeFormat is RFC 3339 in UTC, to the millisecond.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// Relative formats a time in UTC, and its distance from now; the zero time is a dash.
func Relative(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	at := t.UTC().Format(TimeFormat)
	d := t.Sub(now).Round(time.Second)
	if d < 0 {
		return fmt.Sprintf("%s (%s ago)", at, -d)
	}
	return fmt.Sprintf("%s (in %s)", at, d)
}
