package duefleettest_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/recurrence"
	"github.com/duefleet/duefleet/task"
)

// The core of a subscription service: a trial with two reminders, and a charge for each
// period, at the customer's midnight. A declined card has three more tries. A customer may
// cancel or change the plan at any time. The tests are in subscription_test.go.

// plan of a customer: a trial, and then a renewal each month or year.
type plan struct {
	trialDays int
	yearly    bool
}

// customer is a row of the database. Handlers trust it, not the task.
type customer struct {
	plan  plan
	zone  *time.Location // of the IANA database
	since time.Time      // the sign-up
	ends  time.Time      // the end of the trial, the first renewal
	state string         // trial, active, overdue or cancelled
}

// subscriptions is the service. A map stands for the database.
type subscriptions struct {
	tasks     *producer.Client
	customers map[string]*customer
	mail      func(id, text string)
	// charge takes the money of a period, once: its idempotency key has the customer and the
	// period's first day.
	charge func(id, from string) error
}

// errDeclined is an error of charge: another try helps only after days.
var errDeclined = errors.New("the card was declined")

const (
	subscriptionTopic = "subscriptions"
	day               = 24 * time.Hour
)

// dunning is the consumer's policy: three more tries, 1, 3 and 7 days after the first.
var dunning = consumer.Delays(day, 2*day, 4*day)

// reminders are how many days before the end of the trial. Each is a task of its own, so a
// mail that can't be sent delays no charge.
var reminders = map[string]int{"week-left": 7, "day-left": 1}

// signUp begins a trial. Tasks of a customer without a row do nothing, so after an error the
// caller tries again.
func (s *subscriptions) signUp(ctx context.Context, id string, c customer) error {
	c.state = "trial"
	err := s.schedule(ctx, id, &c)
	if err == nil {
		s.customers[id] = &c
	}
	return err
}

// change changes the plan. A trial becomes as long as the new plan's. A period that is paid
// stays as it is. After an error the caller tries again.
func (s *subscriptions) change(ctx context.Context, id string, p plan) error {
	s.customers[id].plan = p
	return s.schedule(ctx, id, s.customers[id])
}

// cancel ends a subscription now. The row comes first: a task that is in a handler or can't
// be cancelled finds it. Dunning ends, too, as its tries are runs of the recurring task.
func (s *subscriptions) cancel(ctx context.Context, id string) error {
	s.customers[id].state = "cancelled"
	_, err := s.tasks.CancelGroup(ctx, subscriptionTopic, id)
	return err
}

// schedule stores the tasks of a new customer. For another one it replaces those still stored.
func (s *subscriptions) schedule(ctx context.Context, id string, c *customer) error {
	next, err := s.next(ctx, id, c)
	if err != nil {
		return err
	}
	requests := []producer.Request{{ID: id + "/renew", When: producer.At(next), Recurrence: c.rule(next)}}
	for step, days := range reminders {
		requests = append(requests, producer.Request{ID: id + "/" + step, When: producer.At(c.ends.AddDate(0, 0, -days))})
	}
	for i := range requests {
		r := &requests[i]
		r.Topic, r.Group, r.IfPresent = subscriptionTopic, id, s.customers[id] != nil
	}
	for _, r := range s.tasks.ScheduleMany(ctx, requests) {
		if r.Err != nil && !errors.Is(r.Err, task.ErrNotFound) { // the reminder was sent
			return r.Err
		}
	}
	return nil
}

// next returns the next renewal. On trial it is the first time of the rule at the end of the
// trial, whose first day is the day of the sign-up.
func (s *subscriptions) next(ctx context.Context, id string, c *customer) (time.Time, error) {
	if c.state != "trial" {
		stored, err := s.tasks.Get(ctx, subscriptionTopic, id+"/renew")
		return stored.Due, err
	}
	c.ends = c.since.In(c.zone).AddDate(0, 0, c.plan.trialDays)
	rule, err := recurrence.Of(*c.rule(c.ends))
	c.ends, _ = rule.After(c.ends.AddDate(0, 0, -1))
	return c.ends, err
}

// rule returns when a customer renews, if next is such a time: on the day of the month at
// which the trial ended. Not each month has a 29th, 30th and 31st. For these it is the last
// day of every month, L, and a trial is longer until then.
func (c *customer) rule(next time.Time) *task.Recurrence {
	day, month := strconv.Itoa(c.ends.Day()), "*"
	if c.ends.Day() > 28 {
		day = "L"
	}
	if c.plan.yearly {
		month = next.In(c.zone).Format("1")
	}
	return producer.Cron("0 0 "+day+" "+month+" *", c.zone.String())
}

// handle sends a reminder, or charges a customer for a period. Its local date names the
// period, also in other tries. They delay no renewal: each run is a task of its own.
func (s *subscriptions) handle(ctx context.Context, d task.Delivery) error {
	id, step, _ := strings.Cut(d.ID, "/")
	c := s.customers[id]
	if c == nil || c.state == "cancelled" {
		return nil
	}
	if d.Series == "" {
		if c.state == "trial" {
			s.mail(id, step)
		}
		return nil
	}
	err := s.charge(id, d.FirstDue.In(c.zone).Format(time.DateOnly))
	if err == nil {
		c.state = "active"
		return nil
	}
	c.state = "overdue"
	switch {
	case !errors.Is(err, errDeclined):
		return consumer.Later(err, time.Hour) // an outage is no try of dunning
	case d.LastAttempt(err):
		s.mail(id, "ended")
		return s.cancel(ctx, id)
	}
	s.mail(id, "declined")
	return err
}
