package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/task"
)

// Relative formats a time in UTC, and its distance from now; the zero time is a dash.
func Relative(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := t.Sub(now).Round(time.Second)
	if d < 0 {
		return fmt.Sprintf("%s (%s ago)", duetime.Text(t), -d)
	}
	return fmt.Sprintf("%s (in %s)", duetime.Text(t), d)
}

// ParseMoment parses a flag's time: RFC 3339, Unix milliseconds, or a duration from now.
// An empty text is the zero time. Errors are a UsageError.
func ParseMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && task.LooksLikeSeconds(ms) {
		return time.Time{}, UsageError(fmt.Sprintf("%s %s: looks like Unix seconds; want milliseconds, as in %s000",
			flag, text, text))
	}
	if at, err := duetime.At(text); err == nil {
		return at, nil
	}
	d, err := duetime.Span(text)
	if err != nil {
		return time.Time{}, UsageError(fmt.Sprintf("%s %q: want RFC 3339, Unix milliseconds, or a duration from now "+
			"as in 30m, -1h, 2d", flag, text))
	}
	return now.Add(d), nil
}

// DurationVar defines a flag with a duration as duetime.Span parses it, in days too.
func DurationVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*durationFlag)(p), name, usage)
}

type durationFlag time.Duration

// Set implements pflag.Value.
func (d *durationFlag) Set(text string) error {
	parsed, err := duetime.Span(text)
	*d = durationFlag(parsed)
	return err
}

// String implements pflag.Value.
func (d *durationFlag) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (d *durationFlag) Type() string { return "duration" }
