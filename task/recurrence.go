package task

import (
	"strings"
	"time"
)

// MaxRecurringID is the longest ID of a recurring task, in bytes. The ID of each run has
// room for the run's time: see RunID.
const MaxRecurringID = MaxID - runIDRest

const (
	runIDTime = "@2006-01-02T15:04:05.000Z"
	runIDRest = len(runIDTime)
)

// Recurrence is the rule by which a task recurs. One run is stored at a time. When
// RabbitMQ has confirmed it, the next one becomes due. Package recurrence computes the times.
type Recurrence struct {
	// Every is the distance of the runs: a second to MaxAhead, cut to the millisecond. It is
	// 0 if Cron is set.
	Every time.Duration
	// Cron is an expression of minute, hour, day, month and day of week, in the local time of
	// Zone. See recurrence.Cron.
	Cron string
	// Zone is a name of the IANA database, such as Europe/Berlin. It is "" with Every.
	Zone string
	// Until is the latest time of a run, to the millisecond. Zero means no end.
	Until time.Time
	// Runs is how many runs are left, up to 2^32 - 1. 0 means no limit.
	Runs int
	// Each makes all runs follow one another that were missed while nothing was delivered.
	// By default one run stands for all of them.
	Each bool
	// Planned is when the stored run is due by the rule, if it was moved. It is zero if the
	// run was not moved, and in requests.
	Planned time.Time
}

// PlannedAt returns when the stored run is due by the rule. due is its due time.
func (r *Recurrence) PlannedAt(due time.Time) time.Time {
	if r.Planned.IsZero() {
		return due
	}
	return r.Planned
}

// RunID returns the ID of one run of a recurring task: the task's ID, and when the run is due
// by the rule. An example is "invoice-7@2026-12-01T08:00:00.000Z". Deliveries of a run have
// it. So do retries and parked runs, which are stored as tasks of their own.
func RunID(id string, planned time.Time) string { return id + planned.UTC().Format(runIDTime) }

// Planned returns when a run of a recurring task is due by the rule, to the millisecond. A run that
// was moved or is retried has another Due. For a stored recurring task it is the time of the stored
// run. ok is false for every other task.
func (t *Task) Planned() (at time.Time, ok bool) {
	if t.Recurrence != nil {
		return t.Recurrence.PlannedAt(t.Due), true
	}
	text, ok := strings.CutPrefix(t.ID, t.Series)
	if t.Series == "" || !ok {
		return time.Time{}, false
	}
	at, err := time.Parse(runIDTime, text)
	return at, err == nil
}
