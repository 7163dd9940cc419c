package duefleettest_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/producer"
)

const day = 24 * time.Hour

var (
	monthly = plan{trialDays: 14, months: 1}
	yearly  = plan{trialDays: 30, months: 12}
	begin   = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
)

// book is the service under test, and a book of what it did.
type book struct {
	*subscriptions
	fleet  *duefleettest.Fleet
	lines  []string
	answer error // of the payment service
}

// open opens the service on the first of March, with the customer ann.
func open(t *testing.T) *book {
	t.Helper()
	b := &book{}
	b.subscriptions = &subscriptions{
		customers: map[string]*customer{},
		mail:      func(id, text string) { b.note("mail", id, text) },
		charge: func(id string, _ time.Time) error {
			b.note("charge", id)
			return b.answer
		},
	}
	b.fleet = duefleettest.New(t, duefleettest.Config{
		Topics: []string{subscriptionTopic}, Handler: b.handle, Start: begin,
		Policy: consumer.Fixed(time.Hour, 24),
	})
	b.tasks = b.fleet.Client()
	if err := b.signUp(t.Context(), "ann", monthly); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *book) note(what ...string) {
	b.lines = append(b.lines, b.fleet.Now().Format("Jan 2 15:04 ")+strings.Join(what, " "))
}

// want compares what the service did since the last call.
func (b *book) want(t *testing.T, state string, lines ...string) {
	t.Helper()
	if !reflect.DeepEqual(b.lines, lines) {
		t.Errorf("got\n%q\nwant\n%q", b.lines, lines)
	}
	if got := b.customers["ann"].state; got != state {
		t.Errorf("the customer is %s, want %s", got, state)
	}
	b.lines = nil
}

func TestATrialBecomesASubscription(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.fleet.Advance(14*day - time.Millisecond)
	b.want(t, "trial", "Mar 8 09:00 mail ann week-left", "Mar 14 09:00 mail ann day-left")
	b.fleet.Advance(90 * day)
	b.want(t, "active", "Mar 15 09:00 charge ann", "Apr 15 09:00 charge ann", "May 15 09:00 charge ann")
	if n := len(b.fleet.Advance(10 * 365 * day)); n != 120 {
		t.Errorf("got %d charges in ten years, want 120", n)
	}
}

func TestADeclinedCard(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.fleet.Advance(14*day - time.Millisecond)
	b.lines, b.answer = nil, errDeclined
	b.fleet.Advance(3 * day)
	b.want(t, "overdue", "Mar 15 09:00 charge ann", "Mar 15 09:00 mail ann declined",
		"Mar 16 09:00 charge ann", "Mar 16 09:00 mail ann declined")
	b.answer = nil // a new card
	b.fleet.Advance(30 * day)
	b.want(t, "active", "Mar 18 09:00 charge ann", "Apr 15 09:00 charge ann")
	b.answer = errDeclined // for good
	b.fleet.Advance(365 * day)
	b.want(t, "cancelled", "May 15 09:00 charge ann", "May 15 09:00 mail ann declined",
		"May 16 09:00 charge ann", "May 16 09:00 mail ann declined", "May 18 09:00 charge ann",
		"May 18 09:00 mail ann declined", "May 22 09:00 charge ann", "May 22 09:00 mail ann ended")
}

// TestThePaymentServiceIsAway: retries don't move the day of the month.
func TestThePaymentServiceIsAway(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.fleet.Advance(14*day - time.Millisecond)
	b.lines, b.answer = nil, errAway
	b.fleet.Advance(2 * time.Hour)
	b.want(t, "trial", "Mar 15 09:00 charge ann", "Mar 15 10:00 charge ann")
	b.answer = nil
	b.fleet.Advance(31 * day)
	b.want(t, "active", "Mar 15 11:00 charge ann", "Apr 15 09:00 charge ann")
}

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
		"during an outage":    {14*day + time.Hour/2, errAway},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			b.answer = when.answer
			b.fleet.Advance(when.after)
			if err := b.cancel(t.Context(), "ann"); err != nil {
				t.Fatal(err)
			}
			if got := b.fleet.Pending(subscriptionTopic); len(got) > 0 {
				t.Errorf("got tasks %+v, want none", got)
			}
			if got := b.fleet.Advance(365 * day); len(got) > 0 {
				t.Errorf("got deliveries %+v, want none", got)
			}
		})
	}
}

func TestAChangeOfThePlanMovesTheTasks(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.fleet.Advance(10 * day)
	b.want(t, "trial", "Mar 8 09:00 mail ann week-left")
	if err := b.change(t.Context(), "ann", yearly); err != nil {
		t.Fatal(err)
	}
	b.fleet.Advance(365 * day)
	b.want(t, "active", "Mar 30 09:00 mail ann day-left", "Mar 31 09:00 charge ann")
	b.fleet.Advance(60 * day)
	b.want(t, "active", "Mar 31 09:00 charge ann")
	if err := b.change(t.Context(), "ann", monthly); err != nil {
		t.Fatal(err)
	}
	b.fleet.Advance(365 * day)
	b.want(t, "active", "Mar 31 09:00 charge ann", "Apr 30 09:00 charge ann")
}

// TestARepeatedDeliveryChargesNobodyTwice: a crash repeats a delivery. Here the task is
// scheduled once more in the middle of the period.
func TestARepeatedDeliveryChargesNobodyTwice(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.fleet.Advance(20 * day)
	b.lines = nil
	if _, err := b.tasks.Schedule(t.Context(), producer.Request{Topic: subscriptionTopic, ID: "ann/renew",
		When: producer.Now(), Payload: []byte("renew")}); err != nil {
		t.Fatal(err)
	}
	b.fleet.Advance(30 * day)
	b.want(t, "active", "Apr 15 09:00 charge ann")
}
