package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/schollz/progressbar/v3"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/task"
)

// verifyReport is the result of verify.
type verifyReport struct {
	Topic string `json:"topic"`
	Run   string `json:"id_prefix"`
	// Interrupted is true if it ended before --for and --wait did.
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
	LostTasks []lostTask `json:"lost_tasks"`
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
	// P50 and P99 are at most 9 % too large. All are in milliseconds.
	P50       float64          `json:"late_p50_ms"`
	P99       float64          `json:"late_p99_ms"`
	Max       float64          `json:"late_max_ms"`
	Histogram []latenessBucket `json:"late_histogram"`
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

// lostTask says where a lost task is.
type lostTask struct {
	ID string `json:"id"`
	// State is "not stored", or the state of the stored task.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Events are the kinds of its events, if the topic keeps history.
	Events []string `json:"events,omitempty"`
}

// report returns what the ledger has counted.
func (v *verification) report(seconds float64) *verifyReport {
	known, unknown := v.ledger.missing()
	l := v.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	return &verifyReport{
		Topic: v.flags.topic, Run: l.prefix,
		Scheduled: l.scheduled, Delivered: l.delivered, Outstanding: int64(len(known)), Uncertain: int64(unknown),
		LostTasks: []lostTask{}, Early: l.earlyCount, EarlyTasks: append([]string{}, l.early...),
		Marked: l.markedCount, Unmarked: l.unmarkedCount, UnmarkedTasks: append([]string{}, l.unmarked...),
		Restored: l.storedCount, Foreign: l.foreign,
		Outages: v.schedule.outages, OutageSeconds: math.Round(v.schedule.out.Seconds()*1000) / 1000,
		Reconnects: v.queue.lost, Away: v.queue.away.Load(),
		P50: millis(l.late.quantile(0.5)), P99: millis(l.late.quantile(0.99)), Max: millis(l.late.max),
		Histogram: l.late.buckets(), ClockError: millis(v.clock.largest()),
		Rate:    math.Round(float64(l.scheduled) / max(v.schedule.took.Seconds(), 1e-6)),
		Seconds: math.Round(seconds*1000) / 1000,
	}
}

// find turns the outstanding tasks into lost ones, and finds where they are.
func (r *verifyReport) find(ctx context.Context, v *verification) {
	known, _ := v.ledger.missing()
	r.Lost, r.Outstanding = r.Outstanding, 0
	const batch = 1000
	for len(known) > 0 {
		some := known[:min(batch, len(known))]
		known = known[len(some):]
		ids := make([]string, len(some))
		for i, n := range some {
			ids[i] = v.ledger.id(n)
		}
		for i, got := range v.client.GetMany(ctx, v.flags.topic, ids) {
			lost := lostTask{ID: ids[i], State: "not stored"}
			switch {
			case got.Err == nil:
				lost.State, lost.Reason = string(stateOf(&got.Task)), got.Task.Reason
			case !errors.Is(got.Err, task.ErrNotFound):
				lost.State, lost.Reason = "unknown", got.Err.Error()
			}
			if lost.State == string(task.Parked) {
				r.Parked++
			}
			if len(r.LostTasks) < verifyShown {
				// Without the right to read the history, the state alone is shown.
				events, _ := v.client.History(ctx, v.flags.topic, lost.ID)
				for _, e := range events {
					lost.Events = append(lost.Events, string(e.Kind))
				}
				r.LostTasks = append(r.LostTasks, lost)
			}
		}
	}
}

// text is the report for people.
func (r *verifyReport) text() string {
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
		line("rabbitmq", "%d lost connections%s", r.Reconnects, awayText(r.Away))
	}
	line("lateness", "p50 %.1f ms, p99 %.1f ms, max %.1f ms", r.P50, r.P99, r.Max)
	return strings.TrimRight(b.String(), "\n") + latenessChart(r.Histogram)
}

func awayText(away bool) string {
	if away {
		return "; it is away, so tasks that aren't stored may wait in the queue"
	}
	return ""
}

// String describes the task on one line.
func (t lostTask) String() string {
	text := t.ID + ": " + t.State
	if t.Reason != "" {
		text += ", " + t.Reason
	}
	if len(t.Events) > 0 {
		text += "; history: " + strings.Join(t.Events, ", ")
	}
	return text
}

// verdict returns the error of the whole run, nil if the installation is good. failure is
// why it ended early.
func (r *verifyReport) verdict(failure error, maxLate time.Duration) error {
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
	name := "verify " + r.Topic
	switch {
	case failure != nil && len(wrong) > 0:
		return fmt.Errorf("%s: %s: %w", name, strings.Join(wrong, "; "), failure)
	case failure != nil:
		return fmt.Errorf("%s: %w", name, failure)
	case len(wrong) > 0:
		return fmt.Errorf("%s: %s", name, strings.Join(wrong, "; "))
	}
	return nil
}

// arrived counts a message.
func (v *verification) arrived(d amqp.Delivery) {
	now, within := v.clock.now(time.Now())
	v.ledger.arrive(d, now, within)
}

// show draws a progress bar on a terminal until ctx ends.
func (v *verification) show(ctx context.Context, out io.Writer) {
	if !cli.OnTerminal(os.Stderr) {
		return
	}
	all := v.flags.long.Seconds() * float64(v.flags.rate)
	bar := progressbar.NewOptions64(int64(all), progressbar.OptionSetWriter(out), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(10), progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false))
	defer func() { _ = bar.Finish() }()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			v.ledger.mu.Lock()
			scheduled, delivered, left := v.ledger.scheduled, v.ledger.delivered, len(v.ledger.outstanding)
			v.ledger.mu.Unlock()
			bar.Describe(fmt.Sprintf("%d scheduled, %d delivered, %d outstanding", scheduled, delivered, left))
			_ = bar.Set64(min(delivered, int64(all)))
		}
	}
}
