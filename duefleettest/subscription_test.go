package duefleettest_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

var (
	monthly = plan{trialDays: 14}
	yearly  = plan{trialDays: 30, yearly: true}
)

// book is the service under test, and a book of what it did.
type book struct {
	*subscriptions
	fleet    *duefleettest.Fleet
	zone     *time.Location // of the customer ann, in which the book has its times
	lines    []string
	answer   error           // of the payment service
	declined string          // a period that it can't charge
	paid     map[string]bool // its idempotency keys
}

// open opens the service. On that day, at 09:00 in her zone, the customer ann signs up.
func open(t *testing.T, zone, date string) *book {
	t.Helper()
	location, err := time.LoadLocation(zone)
	check.OK(t, err)
	start, err := time.ParseInLocation("2006-01-02 15:04", date+" 09:00", location)
	check.OK(t, err)
	b := &book{zone: location, paid: map[string]bool{}}
	b.subscriptions = &subscriptions{
		customers: map[string]*customer{},
		mail:      func(id, text string) { b.note("mail", id, text) },
		charge: func(id, from string) error {
			if b.paid[id+from] {
				return nil
			}
			b.note("charge", id)
			if from == b.declined {
				return errDeclined
			}
			b.paid[id+from] = b.answer == nil
			return b.answer
		},
	}
	b.fleet = duefleettest.New(t, duefleettest.Config{
		Topics: []string{subscriptionTopic}, Handler: b.handle, Start: start, Policy: dunning,
	})
	b.tasks = b.fleet.Client()
	check.OK(t, b.signUp(t.Context(), "ann", customer{plan: monthly, zone: location, since: start}))
	return b
}

func (b *book) note(what ...string) {
	b.lines = append(b.lines, b.fleet.Now().In(b.zone).Format("Jan 2 15:04 ")+strings.Join(what, " "))
}

// until moves the clock to a local time of ann.
func (b *book) until(t *testing.T, local string) []duefleettest.Delivery {
	t.Helper()
	at, err := time.ParseInLocation("2006-01-02 15:04", local, b.zone)
	check.OK(t, err)
	return b.fleet.Advance(at.Sub(b.fleet.Now()))
}

// want compares what the service did since the last call.
func (b *book) want(t *testing.T, state string, lines ...string) {
	t.Helper()
	if !slices.Equal(b.lines, lines) {
		t.Errorf("got\n%q\nwant\n%q", b.lines, lines)
	}
	if got := b.customers["ann"].state; got != state {
		t.Errorf("the customer is %s, want %s", got, state)
	}
	b.lines = nil
}

func TestATrialBecomesASubscription(t *testing.T) {
	t.Parallel()
	b := open(t, "Europe/Berlin", "2026-03-01")
	b.until(t, "2026-03-14 23:59")
	b.want(t, "trial", "Mar 8 00:00 mail ann week-left", "Mar 14 00:00 mail ann day-left")
	b.until(t, "2026-06-14 23:59")
	b.want(t, "active", "Mar 15 00:00 charge ann", "Apr 15 00:00 charge ann", "May 15 00:00 charge ann")
	if n := len(b.until(t, "2036-06-14 23:59")); n != 120 {
		t.Errorf("got %d charges in ten years, want 120", n)
	}
}

// TestRenewalsAreAtMidnightOfTheZone: the clocks change in each of these zones, in Beirut and
// Santiago at midnight.
func TestRenewalsAreAtMidnightOfTheZone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		zone, date, until string
		charges           []string // in UTC
	}{
		"Berlin, to summer":     {"Europe/Berlin", "2026-03-14", "2026-05-01", []string{"Mar 27 23:00", "Apr 27 22:00"}},
		"Berlin, to winter":     {"Europe/Berlin", "2026-10-01", "2026-12-01", []string{"Oct 14 22:00", "Nov 14 23:00"}},
		"Berlin, on the day":    {"Europe/Berlin", "2026-10-11", "2026-12-01", []string{"Oct 24 22:00", "Nov 24 23:00"}},
		"New York, to summer":   {"America/New_York", "2026-02-15", "2026-04-20", []string{"Mar 1 05:00", "Apr 1 04:00"}},
		"New York, to winter":   {"America/New_York", "2026-10-18", "2026-12-10", []string{"Nov 1 04:00", "Dec 1 05:00"}},
		"Santiago, no midnight": {"America/Santiago", "2026-08-23", "2026-10-20", []string{"Sep 6 04:00", "Oct 6 03:00"}},
		"Beirut, no midnight":   {"Asia/Beirut", "2027-03-14", "2027-05-01", []string{"Mar 27 22:00", "Apr 27 21:00"}},
		"the last day": {"Europe/Berlin", "2026-12-16", "2027-04-01", []string{"Dec 30 23:00", "Jan 30 23:00",
			"Feb 27 23:00", "Mar 30 22:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, c.zone, c.date)
			var charges []string
			for _, d := range b.until(t, c.until+" 12:00") {
				if strings.HasPrefix(d.ID, "ann/renew@") {
					charges = append(charges, d.Due.Format("Jan 2 15:04"))
				}
			}
			if !slices.Equal(charges, c.charges) {
				t.Errorf("got charges at %q, want %q", charges, c.charges)
			}
		})
	}
}

// openDeclined opens the service for a customer whose first charge, on April 15, is declined.
func openDeclined(t *testing.T) *book {
	t.Helper()
	b := open(t, "Europe/Berlin", "2026-04-01")
	b.until(t, "2026-04-14 23:59")
	b.lines, b.answer = nil, errDeclined
	return b
}

func TestADeclinedCard(t *testing.T) {
	t.Parallel()
	b := openDeclined(t)
	b.until(t, "2026-04-17 12:00")
	b.want(t, "overdue", "Apr 15 00:00 charge ann", "Apr 15 00:00 mail ann declined",
		"Apr 16 00:00 charge ann", "Apr 16 00:00 mail ann declined")
	b.answer = nil // a new card
	b.until(t, "2026-05-17 12:00")
	b.want(t, "active", "Apr 18 00:00 charge ann", "May 15 00:00 charge ann")
	b.answer = errDeclined // for good
	b.until(t, "2027-05-17 12:00")
	b.want(t, "cancelled", "Jun 15 00:00 charge ann", "Jun 15 00:00 mail ann declined",
		"Jun 16 00:00 charge ann", "Jun 16 00:00 mail ann declined", "Jun 18 00:00 charge ann",
		"Jun 18 00:00 mail ann declined", "Jun 22 00:00 charge ann", "Jun 22 00:00 mail ann ended")
}

// TestThePaymentServiceIsAway: it moves no renewal, and is no try of dunning.
func TestThePaymentServiceIsAway(t *testing.T) {
	t.Parallel()
	b := open(t, "Europe/Berlin", "2026-03-01")
	b.until(t, "2026-03-14 23:59")
	b.lines, b.answer = nil, errAway
	b.until(t, "2026-03-15 01:30")
	b.want(t, "overdue", "Mar 15 00:00 charge ann", "Mar 15 01:00 charge ann")
	check.OK(t, b.change(t.Context(), "ann", monthly)) // it asks for no second charge
	b.answer = errDeclined
	b.until(t, "2026-03-18 12:00")
	b.want(t, "overdue", "Mar 15 02:00 charge ann", "Mar 15 02:00 mail ann declined",
		"Mar 16 02:00 charge ann", "Mar 16 02:00 mail ann declined",
		"Mar 18 02:00 charge ann", "Mar 18 02:00 mail ann declined")
	b.answer = nil
	b.until(t, "2026-04-15 12:00")
	b.want(t, "active", "Mar 22 02:00 charge ann", "Apr 15 00:00 charge ann")
}

// TestAFailingChargeDelaysNoRenewal: May's renewal comes early, amid the dunning for April.
func TestAFailingChargeDelaysNoRenewal(t *testing.T) {
	t.Parallel()
	b := open(t, "Europe/Berlin", "2026-04-01")
	b.until(t, "2026-04-14 23:59")
	b.lines, b.declined = nil, "2026-04-15"
	b.until(t, "2026-04-16 12:00")
	b.want(t, "overdue", "Apr 15 00:00 charge ann", "Apr 15 00:00 mail ann declined",
		"Apr 16 00:00 charge ann", "Apr 16 00:00 mail ann declined")
	_, err := b.tasks.Reschedule(t.Context(), subscriptionTopic, "ann/renew", task.In(day))
	check.OK(t, err)
	b.until(t, "2026-04-18 12:00")
	b.want(t, "overdue", "Apr 17 12:00 charge ann", "Apr 18 00:00 charge ann", "Apr 18 00:00 mail ann declined")
	b.declined = ""
	b.until(t, "2026-06-20 12:00")
	b.want(t, "active", "Apr 22 00:00 charge ann", "Jun 15 00:00 charge ann")
}

// TestACancelEndsEverything: nothing is stored any more, and no handler gets anything.
func TestACancelEndsEverything(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]struct {
		after  time.Duration
		answer error
	}{
		"at once":             {0, nil},
		"between reminders":   {10 * day, nil},
		"in the first period": {20 * day, nil},
		"while overdue":       {16 * day, errDeclined},
		"during an outage":    {13*day + 16*time.Hour, errAway},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, "Europe/Berlin", "2026-04-01")
			b.answer = when.answer
			b.fleet.Advance(when.after)
			check.OK(t, b.cancel(t.Context(), "ann"))
			b.lines, b.answer = nil, nil
			b.customers["ann"].state = "active" // so that a handler would do something
			check.Equal(t, "stored tasks", len(b.fleet.Pending(subscriptionTopic)), 0)
			check.Equal(t, "deliveries", len(b.fleet.Advance(365*day)), 0)
			b.want(t, "active")
		})
	}
}

func TestAChangeOfThePlanMovesTheTasks(t *testing.T) {
	t.Parallel()
	b := open(t, "Europe/Berlin", "2026-03-01")
	b.until(t, "2026-03-11 12:00")
	b.want(t, "trial", "Mar 8 00:00 mail ann week-left")
	check.OK(t, b.change(t.Context(), "ann", yearly))
	b.until(t, "2027-03-11 12:00")
	b.want(t, "active", "Mar 30 00:00 mail ann day-left", "Mar 31 00:00 charge ann")
	b.until(t, "2027-05-11 12:00")
	b.want(t, "active", "Mar 31 00:00 charge ann")
	check.OK(t, b.change(t.Context(), "ann", monthly)) // the year is paid
	b.until(t, "2028-05-11 12:00")
	b.want(t, "active", "Mar 31 00:00 charge ann", "Apr 30 00:00 charge ann")
	check.OK(t, b.change(t.Context(), "ann", yearly)) // the month is paid
	b.until(t, "2029-06-11 12:00")
	b.want(t, "active", "May 31 00:00 charge ann", "May 31 00:00 charge ann")
}

// TestAChangeOfThePlanEndsNoDunning: the period before is still to pay.
func TestAChangeOfThePlanEndsNoDunning(t *testing.T) {
	t.Parallel()
	b := openDeclined(t)
	b.until(t, "2026-04-15 12:00")
	b.want(t, "overdue", "Apr 15 00:00 charge ann", "Apr 15 00:00 mail ann declined")
	check.OK(t, b.change(t.Context(), "ann", yearly))
	b.answer = nil
	b.until(t, "2027-05-17 12:00")
	b.want(t, "active", "Apr 16 00:00 charge ann", "May 15 00:00 charge ann", "May 15 00:00 charge ann")
}

func TestCustomersHaveTasksOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := open(t, "Europe/Berlin", "2026-04-01")
	zone, err := time.LoadLocation("America/New_York")
	check.OK(t, err)
	check.OK(t, b.signUp(t.Context(), "bob", customer{plan: monthly, zone: zone, since: b.fleet.Now()}))
	check.OK(t, b.change(t.Context(), "bob", yearly))
	b.until(t, "2026-04-15 12:00")
	b.want(t, "active", "Apr 8 00:00 mail ann week-left", "Apr 14 00:00 mail ann day-left", "Apr 15 00:00 charge ann")
	check.OK(t, b.cancel(t.Context(), "ann"))
	b.until(t, "2027-04-15 12:00")
	b.want(t, "cancelled", "Apr 24 06:00 mail bob week-left", "Apr 30 06:00 mail bob day-left", "May 1 06:00 charge bob")
}

// TestARepeatedDeliveryChargesNobodyTwice: a crash repeats a delivery. A plan that changes
// while a scanner has the renewal makes another run of that day.
func TestARepeatedDeliveryChargesNobodyTwice(t *testing.T) {
	t.Parallel()
	b := open(t, "Europe/Berlin", "2026-04-01")
	made := b.until(t, "2026-04-15 00:01")
	b.lines = nil
	last := made[len(made)-1]
	repeated := task.Task{ID: last.ID, Series: "ann/renew", FirstDue: last.Due, Redelivered: true}
	check.OK(t, b.handle(t.Context(), task.NewDelivery(repeated, nil)))
	_, err := b.tasks.Schedule(t.Context(), producer.Request{Topic: subscriptionTopic, ID: "ann/renew",
		When: producer.Now(), Recurrence: b.customers["ann"].rule(last.Due)})
	check.OK(t, err)
	check.Equal(t, "deliveries", len(b.until(t, "2026-04-20 12:00")), 1)
	b.until(t, "2026-05-15 12:00")
	b.want(t, "active", "May 15 00:00 charge ann")
}
