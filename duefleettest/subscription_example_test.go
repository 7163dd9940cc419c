package duefleettest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// The core of a subscription service: a trial with two reminders, and a charge for each
// period. A declined card has three more tries. A customer may cancel or change the plan at
// any time. The tests are in subscription_test.go.

// plan of a customer: a trial, and then periods of some months.
type plan struct{ trialDays, months int }

// customer is a row of the database. Handlers trust it, not the task.
type customer struct {
	plan  plan
	state string    // trial, active, overdue or cancelled
	first time.Time // the end of the trial, when the first period begins
	paid  int       // months that are paid
}

// until returns the end of the trial or of the paid months. The day of the month stays, as
// far as a month has it: January 31, February 28, March 31.
func (c *customer) until() time.Time {
	end := c.first.AddDate(0, c.paid, 0)
	if end.Day() != c.first.Day() {
		end = end.AddDate(0, 0, -end.Day())
	}
	return end
}

// subscriptions is the service. A map stands for the database.
type subscriptions struct {
	tasks     *producer.Client
	customers map[string]*customer
	mail      func(id, text string)
	// charge asks for the money of a period. Its idempotency key has the period's begin.
	charge func(id string, begin time.Time) error
}

// errDeclined is an error of charge: another try helps only after days.
var errDeclined = errors.New("the card was declined")

const subscriptionTopic = "subscriptions"

// onTrial are the tasks of a customer on trial. Each reminder has a task of its own, so a
// mail that can't be sent delays no charge.
var onTrial = []struct {
	step   string        // the payload, and the end of the ID
	before time.Duration // the end of the trial
}{
	{"week-left", 7 * 24 * time.Hour}, {"day-left", 24 * time.Hour}, {"renew", 0},
}

// dunning has the steps after a declined card: 1, 3 and 7 days after the end of the period.
var dunning = map[string]struct {
	next string // the step after another decline; "" for none
	days int    // after the end of the period
}{
	"renew": {"dunning-1", 1}, "dunning-1": {"dunning-2", 3}, "dunning-2": {"dunning-3", 7}, "dunning-3": {},
}

// signUp begins a trial. Tasks of a customer without a row do nothing, so after an error the
// caller tries again.
func (s *subscriptions) signUp(ctx context.Context, id string, p plan) error {
	trial := time.Duration(p.trialDays) * 24 * time.Hour
	var requests []producer.Request
	for _, t := range onTrial {
		requests = append(requests, producer.Request{Topic: subscriptionTopic, ID: id + "/" + t.step,
			Payload: []byte(t.step), When: producer.In(trial - t.before)})
	}
	var ends time.Time
	for _, r := range s.tasks.ScheduleMany(ctx, requests) {
		if r.Err != nil {
			return r.Err
		}
		ends = r.Due
	}
	s.customers[id] = &customer{plan: p, state: "trial", first: ends}
	return nil
}

// cancel ends a subscription now. The row comes first: a task that is in a handler or can't
// be cancelled finds it.
func (s *subscriptions) cancel(ctx context.Context, id string) error {
	s.customers[id].state = "cancelled"
	var ids []string
	for _, t := range onTrial {
		ids = append(ids, id+"/"+t.step)
	}
	for _, err := range s.tasks.CancelMany(ctx, subscriptionTopic, ids) {
		if err != nil && !errors.Is(err, task.ErrNotFound) { // it was delivered
			return err
		}
	}
	return nil
}

// change changes the plan. A trial becomes as long as the new plan's, so its tasks move. A
// period that is paid stays as it is.
func (s *subscriptions) change(ctx context.Context, id string, p plan) error {
	c := s.customers[id]
	days := p.trialDays - c.plan.trialDays
	c.plan = p
	if c.state != "trial" {
		return nil
	}
	c.first = c.first.AddDate(0, 0, days)
	var moves []producer.Move
	for _, t := range onTrial {
		moves = append(moves, producer.Move{ID: id + "/" + t.step, When: producer.At(c.first.Add(-t.before))})
	}
	for _, r := range s.tasks.RescheduleMany(ctx, subscriptionTopic, moves) {
		if r.Err != nil && !errors.Is(r.Err, task.ErrNotFound) { // the reminder was sent
			return r.Err
		}
	}
	return nil
}

// handle does one step.
func (s *subscriptions) handle(_ context.Context, d task.Delivery) error {
	id, _, _ := strings.Cut(d.ID, "/")
	c := s.customers[id]
	if c == nil || c.state == "cancelled" {
		return nil
	}
	switch step := string(d.Payload); step {
	case "week-left", "day-left":
		if c.state == "trial" {
			s.mail(id, step)
		}
		return nil
	case "renew", "dunning-1", "dunning-2", "dunning-3":
		return s.renew(c, id, d)
	default:
		return consumer.Park(fmt.Errorf("the payload %q is no step of a subscription", step))
	}
}

// renew charges a customer for the next period, and asks for the step after that.
//
// The row says when a step is due, so neither retries nor dunning move the day of the month.
// Without a row, d.FirstDue plus a month does that. d.Scheduled plus a month would be wrong:
// all steps of a chain have the same Scheduled, so soon that time has passed.
func (s *subscriptions) renew(c *customer, id string, d task.Delivery) error {
	if d.FirstDue.Before(c.until()) { // paid, but the delivery ended before its next step was stored
		return d.NextWhen(task.At(c.until()), []byte("renew"))
	}
	err := s.charge(id, c.until())
	after := dunning[string(d.Payload)]
	switch {
	case err == nil:
		c.state = "active"
		c.paid += c.plan.months
		return d.NextWhen(task.At(c.until()), []byte("renew"))
	case !errors.Is(err, errDeclined):
		return err // the consumer tries again by its policy
	case after.next == "":
		c.state = "cancelled"
		s.mail(id, "ended")
		return nil
	}
	c.state = "overdue"
	s.mail(id, "declined")
	return d.NextWhen(task.At(c.until().AddDate(0, 0, after.days)), []byte(after.next))
}
