package recurrence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/recurrence"
	"github.com/duefleet/duefleet/task"
)

// renewals are the renewals of one customer, at midnight of the first day of each month.
type renewals struct {
	client *producer.Client
	rule   recurrence.Rule
}

// next schedules the first run after a time. The application calls it at its start, too: a run
// that is stored already stays as it is.
func (r *renewals) next(ctx context.Context, after time.Time) error {
	at, ok := r.rule.After(after)
	if !ok {
		return nil // the rule has ended
	}
	_, err := r.client.Schedule(ctx, producer.Request{
		Topic: "renewals", ID: "customer-7/" + at.Format(time.DateOnly), When: producer.At(at), IfAbsent: true,
	})
	if errors.Is(err, task.ErrExists) {
		return nil
	}
	return err
}

// handle schedules the next run before it does its work. So a run that fails, or is parked,
// doesn't end the renewals.
func (r *renewals) handle(ctx context.Context, d task.Delivery) error {
	if err := r.next(ctx, d.FirstDue); err != nil {
		return err
	}
	fmt.Println(d.ID, "renewed at", d.FirstDue.UTC().Format(time.RFC3339))
	return nil
}

// A subscription renews at its customer's midnight. The clocks in Berlin change at the end of
// March.
func Example_renewals() {
	duefleettest.Example(func(t testing.TB) {
		rule, err := recurrence.Cron("0 0 1 * *", "Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		r := &renewals{rule: rule.Until(time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC))}
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics: []string{"renewals"}, Handler: r.handle, Start: time.Date(2027, 1, 15, 10, 0, 0, 0, time.UTC),
		})
		r.client = fleet.Client()
		if err := r.next(t.Context(), fleet.Now()); err != nil {
			t.Fatal(err)
		}
		fleet.Advance(365 * 24 * time.Hour)
	})
	// Output:
	// customer-7/2027-02-01 renewed at 2027-01-31T23:00:00Z
	// customer-7/2027-03-01 renewed at 2027-02-28T23:00:00Z
	// customer-7/2027-04-01 renewed at 2027-03-31T22:00:00Z
	// customer-7/2027-05-01 renewed at 2027-04-30T22:00:00Z
}
