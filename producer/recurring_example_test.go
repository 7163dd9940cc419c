package producer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// A subscription renews at its customer's midnight, on the first of each month. The clocks in
// Berlin change at the end of March. A renewal that fails is tried again, and the later ones
// come all the same. A cancel ends the subscription.
func Example_recurring() {
	duefleettest.Example(func(t testing.TB) {
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics: []string{"renewals"},
			Start:  time.Date(2027, 1, 15, 10, 0, 0, 0, time.UTC),
			Handler: func(_ context.Context, d task.Delivery) error {
				fmt.Println(d.Series, "renews at", d.Due.UTC().Format(time.RFC3339), "attempt", d.Attempt)
				if d.Attempt == 1 && d.Due.Month() == time.January {
					return errors.New("the card was refused")
				}
				return nil
			},
		})
		_, err := fleet.Client().Schedule(t.Context(), producer.Request{
			Topic: "renewals", ID: "customer-7", Recurrence: producer.Cron("0 0 1 * *", "Europe/Berlin"),
		})
		if err != nil {
			t.Fatal(err)
		}
		fleet.Advance(76 * 24 * time.Hour)
		if err := fleet.Client().Cancel(t.Context(), "renewals", "customer-7"); err != nil {
			t.Fatal(err)
		}
		fleet.Advance(365 * 24 * time.Hour)
	})
	// Output:
	// customer-7 renews at 2027-01-31T23:00:00Z attempt 1
	// customer-7 renews at 2027-01-31T23:00:00Z attempt 2
	// customer-7 renews at 2027-02-28T23:00:00Z attempt 1
	// customer-7 renews at 2027-03-31T22:00:00Z attempt 1
}
