package verify

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/cli"
)

// Report is the result of a Test.
type Report struct {
	Topic string `json:"topic"`
	// Prefix of the tasks' IDs.
	Prefix string `json:"id_prefix"`
	// Interrupted is true if it ended before Duration and Wait did.
	Interrupted bool  `json:"interrupted"`
	Scheduled   int64 `json:"scheduled"`
	Delivered   int64 `json:"delivered"`
	// Outstanding counts tasks that hadn't arrived when it was interrupted. Otherwise they
	// are lost.
	Outstanding int64 `json:"outstanding"`
	Lost        int64 `json:"lost"`
	// Parked counts the lost tasks that were found parked.
	Parked int64 `json:"parked"`
	// LostTasks describes the first ten of them.
	LostTasks []LostTask `json:"lost_tasks"`
	Early     int64      `json:"early"`
	// EarlyTasks and UnmarkedTasks name the first ten of them.
	EarlyTasks    []string `json:"early_tasks"`
	Marked        int64    `json:"repeated_marked"`
	Unmarked      int64    `json:"repeated_unmarked"`
	UnmarkedTasks []string `json:"unmarked_tasks"`
	// Restored counts repeats of tasks that verify stored twice, because the first call had
	// no answer.
	Restored int64 `json:"repeated_stored_twice"`
	// Uncertain counts tasks whose call never had an answer, and that haven't arrived.
	Uncertain int64 `json:"uncertain"`
	// Foreign counts messages of others. With --shared there may be many.
	Foreign int64 `json:"foreign"`
	// Outages counts the times when Redis didn't store tasks, and OutageSeconds adds them up.
	Outages       int     `json:"schedule_outages"`
	OutageSeconds float64 `json:"schedule_outage_seconds"`
	// Reconnects counts lost connections to RabbitMQ, and Away is true if it was away at the
	// end.
	Reconnects int  `json:"rabbitmq_connections_lost"`
	Away       bool `json:"rabbitmq_away"`
	// P50 and P99 are at most a fifth too large. All are in milliseconds.
	P50       float64  `json:"late_p50_ms"`
	P99       float64  `json:"late_p99_ms"`
	Max       float64  `json:"late_max_ms"`
	Histogram []Bucket `json:"late_histogram"`
	// ClockError is the largest error of the estimate of Redis's clock, in milliseconds.
	ClockError float64 `json:"clock_error_ms"`
	// Cancelled counts tasks that verify removed at its end.
	Cancelled int64 `json:"cancelled"`
	// Cleanup says what remains, "" for nothing.
	Cleanup string `json:"remains,omitempty"`
	// Rate is the number of scheduled tasks per second.
	Rate    float64 `json:"rate"`
	Seconds float64 `json:"seconds"`
}

// Text returns the report for people.
func (r *Report) Text() string {
	var b strings.Builder
	line := func(name, format string, values ...any) {
		fmt.Fprintf(&b, "%-11s%s\n", name, cli.OneLine(fmt.Sprintf(format, values...)))
	}
	if r.Interrupted {
		b.WriteString("interrupted; until then:\n")
	}
	line("scheduled", "%d, %.0f/s; the run took %.1f s", r.Scheduled, r.Rate, r.Seconds)
	line("delivered", "%d", r.Delivered)
	if r.Interrupted {
		line("cancelled", "%d of %d outstanding", r.Cancelled, r.Outstanding)
	} else {
		line("lost", "%d", r.Lost)
	}
	for _, t := range r.LostTasks {
		line("", "%s", t)
	}
	line("parked", "%d", r.Parked)
	line("early", "%d (Redis's clock is known to %.3f ms)", r.Early, r.ClockError)
	for _, id := range r.EarlyTasks {
		line("", "%s", id)
	}
	line("repeated", "%d marked, %d unmarked", r.Marked, r.Unmarked)
	for _, id := range r.UnmarkedTasks {
		line("", "%s", id)
	}
	for _, more := range []struct {
		n    int64
		text string
	}{
		{r.Restored, "repeats of tasks that were stored twice: the first call had no answer"},
		{r.Uncertain, "tasks may not be stored: no call had an answer"},
		{r.Foreign, "messages of others arrived"},
	} {
		if more.n > 0 {
			line("", "%d %s", more.n, more.text)
		}
	}
	if r.Outages > 0 {
		line("outages", "%d of scheduling, %.1f s together", r.Outages, r.OutageSeconds)
	}
	if r.Reconnects > 0 {
		line("rabbitmq", "%d lost connections", r.Reconnects)
	}
	if r.Away {
		line("", "it is away, so tasks that aren't stored may wait in the queue")
	}
	line("lateness", "p50 %.1f ms, p99 %.1f ms, max %.1f ms", r.P50, r.P99, r.Max)
	return strings.TrimRight(b.String(), "\n") + chart(r.Histogram)
}

// verdict returns the error of the whole run, nil if the installation is good. failure is
// why it ended early.
func (r *Report) verdict(failure error, maxLate time.Duration) error {
	var wrong []string
	for _, kind := range []struct {
		n    int64
		text string
	}{{r.Lost, "lost"}, {r.Early, "early"}, {r.Unmarked, "repeated without a mark"}} {
		if kind.n > 0 {
			wrong = append(wrong, fmt.Sprintf("%d %s", kind.n, kind.text))
		}
	}
	if maxLate > 0 && r.Max > millis(maxLate) {
		wrong = append(wrong, fmt.Sprintf("the latest came %.1f ms after it was due, more than --max-late", r.Max))
	}
	if failure == nil && r.Scheduled == 0 {
		wrong = append(wrong, "no task could be scheduled")
	}
	if r.Cleanup != "" {
		wrong = append(wrong, r.Cleanup)
	}
	text := strings.Join(wrong, "; ")
	switch {
	case failure != nil && text != "":
		failure = fmt.Errorf("%s: %w", text, failure)
	case text != "":
		failure = errors.New(text)
	case failure == nil:
		return nil
	}
	return fmt.Errorf("verify %s: %w", r.Topic, failure)
}
