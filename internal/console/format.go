package console

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"strconv"
	"time"
)

// functions are for the templates of all screens.
func functions() template.FuncMap {
	return template.FuncMap{"count": count, "rate": rate, "seconds": seconds, "span": span, "moment": moment, "ago": ago,
		"path": url.PathEscape}
}

// count formats a number of tasks, with a comma for each thousand.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// rate formats tasks per second.
func rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0/s"
	case perSecond < 10:
		return fmt.Sprintf("%.2g/s", perSecond)
	}
	return count(int64(perSecond+.5)) + "/s"
}

// seconds formats seconds with up to three digits and the unit; a dash for 0.
func seconds(s float64) string {
	switch {
	case s == 0:
		return "–"
	case s < 1e-3:
		return fmt.Sprintf("%.0f µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3g ms", s*1e3)
	case s < 100:
		return fmt.Sprintf("%.3g s", s)
	}
	return span(time.Duration(s * float64(time.Second)))
}

// skew formats how much a share of 1 differs from 1, in percent.
func skew(share float64) string { return fmt.Sprintf("%+d %%", int(math.Round((share-1)*100))) }

// span formats a duration in one unit, 0 s if negative.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, 0); {
	case d >= 2*day:
		return fmt.Sprintf("%d d", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// ago formats how long before now a time was; a dash if it is zero.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return span(now.Sub(t)) + " ago"
}

// moment formats a time in UTC. The script adds the browser's zone.
func moment(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	layout := "2006-01-02 15:04:05 UTC"
	if time.Since(t).Abs() < 12*time.Hour {
		layout = "15:04:05 UTC"
	}
	//nolint:gosec // it has digits and the constants above
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `">` + t.Format(layout) + `</time>`)
}
