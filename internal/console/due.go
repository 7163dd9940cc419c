package console

import (
	"fmt"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
)

// window is how far ahead a chart looks, and how wide its bars are.
type window struct {
	name         string
	length, step time.Duration
}

// windows returns all windows; the second is the default.
func windows() []window {
	const day = 24 * time.Hour
	return []window{{"minute", time.Minute, 2 * time.Second}, {"hour", time.Hour, 2 * time.Minute},
		{"day", day, time.Hour}, {"week", 7 * day, 6 * time.Hour}}
}

// windowOf returns a window by its name.
func windowOf(name string) window {
	for _, w := range windows() {
		if w.name == name {
			return w
		}
	}
	return windows()[1]
}

// spans returns the bars of the window. They begin at multiples of step, so they stay the
// same while time passes, but for the first one, which begins now.
func (w window) spans(now time.Time) (spans []admin.DueSpan) {
	now = now.UTC()
	end := now.Add(w.length)
	for at := now; at.Before(end); {
		next := at.Truncate(w.step).Add(w.step)
		spans = append(spans, admin.DueSpan{From: at, To: next})
		at = next
	}
	return spans
}

// The chart's size, in units of its SVG.
const (
	chartWidth  = 720
	chartHeight = 120
)

// dueView has what falls due.
type dueView struct {
	Windows       []dueLink
	Bars          []dueBar
	Width, Height int
	Max           int64
	// From and To are the ends of the chart.
	From, To time.Time
	// Words say the same as the chart; they also say how long the tasks take.
	Words []string
	// Sampled says that the numbers are estimates; "" if they aren't.
	Sampled string
}

// dueLink opens a window.
type dueLink struct {
	Name    string
	Tasks   int64
	Current bool
}

// dueBar is one bar of the chart.
type dueBar struct {
	admin.DueSpan
	X, Y, W, H int
	Label      string
}

func newDueView(w window, t topicContent, s admin.TopicStatus) dueView {
	v := dueView{Width: chartWidth, Height: chartHeight}
	for i, other := range windows() {
		link := dueLink{Name: other.name, Current: other == w}
		if i < len(t.Totals) {
			link.Tasks = t.Totals[i].Tasks
		}
		v.Windows = append(v.Windows, link)
	}
	if len(t.Due) == 0 {
		return v
	}
	v.From, v.To = t.Due[0].From, t.Due[len(t.Due)-1].To
	for _, span := range t.Due {
		v.Max = max(v.Max, span.Tasks)
	}
	for i, span := range t.Due {
		bar := dueBar{DueSpan: span, X: i * chartWidth / len(t.Due), Label: fromTo(span) + ": " + tasks(span.Tasks)}
		bar.W = (i+1)*chartWidth/len(t.Due) - bar.X - 2
		if v.Max > 0 && span.Tasks > 0 {
			bar.H = max(1, int(float64(span.Tasks)/float64(v.Max)*chartHeight))
		}
		bar.Y = chartHeight - bar.H
		v.Bars = append(v.Bars, bar)
	}
	v.Words = forecast(t.Due, s, w.name)
	if t.Counted < s.Polled {
		v.Sampled = fmt.Sprintf("Estimated from %d of %d shards.", t.Counted, s.Polled)
	}
	return v
}

// forecast says in words when most tasks fall due, and how long they take at the rate of
// the last minute.
func forecast(spans []admin.DueSpan, s admin.TopicStatus, name string) (words []string) {
	pace := s.PerSecond
	at := "at the rate of the last minute, " + rate(pace) + ","
	if s.Paused {
		words = append(words, "The topic is paused, so what falls due waits.")
		pace = 0
	}
	if s.Backlog > 0 && pace > 0 {
		words = append(words, fmt.Sprintf("%s due now: %s that takes %s.", are(s.Backlog), at, takes(s.Backlog, pace)))
	}
	var peak admin.DueSpan
	for _, span := range spans {
		if span.Tasks > peak.Tasks {
			peak = span
		}
	}
	if peak.Tasks == 0 {
		return append(words, "Nothing falls due within the next "+name+".")
	}
	text := fmt.Sprintf("Most fall due %s: %s", fromTo(peak), tasks(peak.Tasks))
	if pace > 0 {
		end := peak.From.Add(time.Duration(float64(peak.Tasks) / pace * float64(time.Second)))
		text += fmt.Sprintf("; %s that takes %s: until %s if all are due at once", at, takes(peak.Tasks, pace),
			clockOf(end, peak.From))
	}
	return append(words, text+".")
}

// are returns a number of tasks with its verb.
func are(n int64) string {
	if n == 1 {
		return "1 task is"
	}
	return count(n) + " tasks are"
}

// tasks returns a number of tasks with the word.
func tasks(n int64) string {
	if n == 1 {
		return "1 task"
	}
	return count(n) + " tasks"
}

// takes returns how long n tasks take at a pace.
func takes(n int64, perSecond float64) string {
	if d := time.Duration(float64(n) / perSecond * float64(time.Second)); d >= time.Second {
		return span(d)
	}
	return "less than 1 s"
}

// fromTo names a span in UTC.
func fromTo(s admin.DueSpan) string {
	layout := "15:04"
	if s.To.Sub(s.From) < time.Minute {
		layout = "15:04:05"
	}
	day := ""
	if time.Until(s.From) > 12*time.Hour {
		day = s.From.Format("Mon 2 Jan ")
	}
	return fmt.Sprintf("from %s%s to %s UTC", day, s.From.Format(layout), s.To.Format(layout))
}

// clockOf names a time in UTC, with the day if it isn't near another time.
func clockOf(t, other time.Time) string {
	if t.Sub(other) > 12*time.Hour {
		return t.UTC().Format("Mon 2 Jan 15:04") + " UTC"
	}
	return t.UTC().Format("15:04:05") + " UTC"
}
