package recurrence

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/duefleet/duefleet/task"
)

// Of returns the rule of a recurring task. The error is a *task.RuleError: neither Every nor
// Cron is set, or both are; Runs is below 0 or above 2^32 - 1; Until is before 1971; or an error
// of Every or Cron.
func Of(r task.Recurrence) (Rule, error) {
	var rule Rule
	var err error
	switch {
	case r.Every != 0 && (r.Cron != "" || r.Zone != ""):
		return Rule{}, &task.RuleError{Field: "every", Rule: "must not be set together with cron or zone", Got: r.Every.String()}
	case r.Cron != "":
		if len(r.Cron) > maxText || len(r.Zone) > maxText {
			return Rule{}, &task.RuleError{Field: "cron", Rule: fmt.Sprintf("must have at most %d bytes, as zone", maxText),
				Got: fmt.Sprintf("%d and %d", len(r.Cron), len(r.Zone))}
		}
		rule, err = Cron(r.Cron, r.Zone)
	default:
		rule, err = Every(r.Every)
	}
	if !r.Until.IsZero() {
		err = cmp.Or(err, task.At(r.Until).Check())
	}
	if r.Runs < 0 || r.Runs > math.MaxUint32 {
		err = cmp.Or[error](err, &task.RuleError{Field: "runs", Rule: fmt.Sprintf("must be 0 to %d", math.MaxUint32),
			Got: fmt.Sprint(r.Runs)})
	}
	if err != nil {
		return Rule{}, err
	}
	if !r.Until.IsZero() {
		rule = rule.Until(r.Until.Truncate(time.Millisecond))
	}
	return rule, nil
}

// maxText bounds an expression and a zone, in bytes.
const maxText = 255

// Next returns when the run after a delivered one is due, by its rule. due is when the
// delivered one was due, and now is the present time. ok is false if the delivered run was
// the last one. Runs that were missed until now are left out, unless r has Each.
func Next(r task.Recurrence, due, now time.Time) (next time.Time, ok bool, err error) {
	rule, err := Of(r)
	if err != nil || r.Runs == 1 {
		return time.Time{}, false, err
	}
	if !r.Planned.IsZero() {
		due = r.Planned
	}
	if !r.Each {
		due = rule.last(due, now)
	}
	next, ok = rule.After(due)
	return next, ok, nil
}

// last returns the last time from due to now at which a rule that has due may have a run.
func (r Rule) last(due, now time.Time) time.Time {
	switch {
	case !now.After(due):
		return due
	case r.every > 0:
		return due.Add(now.Sub(due).Truncate(r.every))
	}
	return now
}

// Times returns when the stored run of a recurring task and the next ones are due, n times at
// most. due is the due time of the stored run, which is the first element. The others are as
// if each run was delivered when it was due. With Each, the runs that a moved one passed follow
// it at their times of the rule. A rule that can't be read has no others.
func Times(r task.Recurrence, due time.Time, n int) []time.Time {
	var times []time.Time
	for ok := true; ok && len(times) < n; {
		times = append(times, due)
		due, ok, _ = Next(r, due, due)
		r.Planned, r.Runs = time.Time{}, max(r.Runs-1, 0)
	}
	return times
}
