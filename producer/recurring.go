package producer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/duefleet/duefleet/recurrence"
	"github.com/duefleet/duefleet/task"
)

// Every returns the rule of a task whose runs are d apart: a second to task.MaxAhead. It knows
// no zone: a day is always 24 hours. Set its other fields for an end.
func Every(d time.Duration) *task.Recurrence { return &task.Recurrence{Every: d} }

// Cron returns the rule of a task that runs at the dates of an expression, in the local time
// of a zone such as Europe/Berlin. The expression has minute, hour, day, month and day
// of week: see recurrence.Cron. Set the rule's other fields for an end.
func Cron(expression, zone string) *task.Recurrence {
	return &task.Recurrence{Cron: expression, Zone: zone}
}

// checkRecurrence checks the rules for Recurrence.
func (r *Request) checkRecurrence() error {
	if r.Recurrence == nil {
		return nil
	}
	if len(r.ID) > task.MaxRecurringID {
		return &task.RuleError{Field: "id", Rule: fmt.Sprintf("must be at most %d bytes for a recurring task",
			task.MaxRecurringID), Got: fmt.Sprintf("%d bytes", len(r.ID))}
	}
	_, err := recurrence.Of(*r.Recurrence)
	return err
}

// checkGiven makes the checks of When that need no clock.
func (r *Request) checkGiven() error {
	if r.Recurrence != nil && r.When.IsZero() {
		return nil
	}
	return r.When.Check()
}

// begin sets When to the first run of a recurring task, unless the request names one. The
// request must have passed check.
func (r *Request) begin(now time.Time) error {
	if r.Recurrence == nil || !r.When.IsZero() {
		return nil
	}
	rule, err := recurrence.Of(*r.Recurrence)
	if err != nil {
		return err
	}
	first, ok := rule.After(now)
	if !ok {
		return &task.RuleError{Field: "until", Rule: "must not be before the first run", Got: rule.String()}
	}
	r.When = At(first)
	return nil
}

// begin sets When of recurring tasks, in a copy of the requests. It returns the requests,
// and an error or nil for each. If Redis's clock isn't known, nothing is set: the caller asks
// for it, too.
func (c *Client) begin(ctx context.Context, requests []Request) ([]Request, []error) {
	errs := make([]error, len(requests))
	unset := func(r Request) bool { return r.Recurrence != nil && r.When.IsZero() }
	if !slices.ContainsFunc(requests, unset) {
		return requests, errs
	}
	now, err := c.now(ctx)
	if err != nil {
		return requests, errs
	}
	requests = slices.Clone(requests)
	for i := range requests {
		errs[i] = requests[i].begin(now)
	}
	return requests, errs
}
