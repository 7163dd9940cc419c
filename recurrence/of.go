package recurrence

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/duefleet/duefleet/task"
)

// Of returns the rule of a recurring task. The error is a *task.RuleError, as of Every and Cron.
// One of Every and Cron must be set, Runs be 0 to 2^32 - 1, and Until not before 1971.
func Of(r task.Recurrence) (Rule, error) {
	var rule Rule
	var err error
	switch {
	case r.Every != 0 && (r.Cron != "" || r.Zone != ""):
		return Rule{}, &task.RuleError{Field: "every", Rule: "must not be set together with cron or zone",
			Got: r.Every.String()}
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

// Times returns when a recurring task runs: first due, the time of the stored run, then the
// times of the runs after it. It returns at most n, and fewer if the rule or Runs ends. If Of
// refuses r, the stored run stands alone.
//
// A run that was moved is followed by the times after Planned that are later than due.
func Times(r task.Recurrence, due time.Time, n int) []time.Time {
	if r.Runs > 0 {
		n = min(n, r.Runs)
	}
	if n <= 0 {
		return nil
	}
	times := []time.Time{due}
	rule, err := Of(r)
	if err != nil {
		return times
	}
	at := due
	if !r.Planned.IsZero() {
		at = rule.last(r.Planned, due)
	}
	for len(times) < n {
		next, ok := rule.After(at)
		if !ok {
			break
		}
		times, at = append(times, next), next
	}
	return times
}
