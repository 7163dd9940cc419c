package duetime

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// SpanForm describes the durations that Span accepts.
const SpanForm = "want a duration such as 30m, 1h30m, 500ms or 2d, of at most 100 years"

const unitForm = "want a duration with a unit, as in 30s, 30m or 2d"

// day has no unit in the time package, since some days have 23 or 25 hours. Here it is
// always 24 hours.
const day = 24 * time.Hour

var errSpan = errors.New(SpanForm)

// Span parses a Go duration, which may begin with whole or fractional days: 30m, 2d,
// 1.5d, 1d12h, -2d. A number needs a unit, except 0.
func Span(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, errors.New(unitForm)
	}
	unsigned := strings.TrimLeft(text, "+-")
	if len(text)-len(unsigned) > 1 {
		return 0, errSpan
	}
	d, ok := daysAndRest(unsigned)
	if !ok {
		d, ok = floatDays(unsigned)
	}
	if !ok {
		return 0, errSpan
	}
	if strings.HasPrefix(text, "-") {
		d = -d
	}
	return d, nil
}

// daysAndRest parses text such as 2d, 1.5d and 1d12h exactly.
func daysAndRest(text string) (time.Duration, bool) {
	days, rest, found := strings.Cut(text, "d")
	if !found || strings.ContainsAny(days, "hmsuµn") || strings.ContainsAny(rest, "+-") {
		return 0, false
	}
	// The days are parsed as hours, the largest unit of time.ParseDuration, which also
	// detects an overflow.
	hours, err := time.ParseDuration(days + "h")
	total := hours * 24
	if err != nil || total/24 != hours {
		return 0, false
	}
	if rest == "" {
		return total, true
	}
	part, err := time.ParseDuration(rest)
	return total + part, err == nil && total+part >= total
}

// floatDays parses a number of days with an exponent, such as 1e3d, up to 100 years.
func floatDays(text string) (time.Duration, bool) {
	days, found := strings.CutSuffix(text, "d")
	n, err := strconv.ParseFloat(days, 64)
	return time.Duration(math.Round(n * float64(day))), found && err == nil && math.Abs(n) <= 36525
}
