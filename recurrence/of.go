package recurrence

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/duefleet/duefleet/task"
)

// Of returns the rule of a recurring task. The error is a *task.RuleError:
//   - Neither Every nor Cron is set, or both are.
//   - Runs is below 0 or above 2^32 - 1, or Until is before 1971.
//   - An error of Every or Cron.
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
		var early *task.RuleError
		if errors.As(task.At(r.Until).Check(), &early) {
			err = cmp.Or[error](err, &task.RuleError{Field: "until", Rule: early.Rule, Got: early.Got})
		}
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
	rule.runs, rule.each = r.Runs, r.Each
	return rule, nil
}

// maxText bounds an expression and a zone, in bytes.
const maxText = 255

// Next returns when the run after a delivered one is due. planned is when the delivered one
// was due by the rule (task.Recurrence.PlannedAt), and now is the present time. ok is false if
// it was the last one. Runs that were missed until now are left out, unless the rule has Each.
func (r Rule) Next(planned, now time.Time) (next time.Time, ok bool) {
	switch {
	case r.runs == 1:
		return time.Time{}, false
	case r.each || !now.After(planned):
		return r.After(planned)
	case r.every > 0:
		return r.After(planned.Add(now.Sub(planned).Truncate(r.every)))
	}
	return r.After(now)
}

// Times returns when a recurring task runs next, at most n times. The first is due, the time of
// the stored run. The others follow if each run is delivered at its time, or now if that has
// passed. If Of refuses r, the stored run stands alone.
func Times(r task.Recurrence, due, now time.Time, n int) []time.Time {
	if n <= 0 {
		return nil
	}
	times, planned := []time.Time{due}, r.PlannedAt(due)
	rule, err := Of(r)
	for err == nil && len(times) < n {
		if due.After(now) {
			now = due
		}
		next, ok := rule.Next(planned, now)
		if !ok {
			break
		}
		times, due, planned = append(times, next), next, next
		rule.runs = max(rule.runs-1, 0)
	}
	return times
}
