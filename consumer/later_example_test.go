package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// A bank is asked about a refund every four hours. Waiting is no failed attempt. After a day
// the task is parked, so that a person looks.
func Example_later() {
	errOpen := errors.New("the bank hasn't decided")
	duefleettest.Example(func(t testing.TB) {
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics: []string{"refunds"},
			Start:  time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
			Handler: func(_ context.Context, d task.Delivery) error {
				if d.Due.Sub(d.FirstDue) >= 24*time.Hour {
					return consumer.Park(errOpen)
				}
				return consumer.Later(errOpen, 4*time.Hour)
			},
		})
		request := producer.Request{Topic: "refunds", ID: "r-1", When: producer.Now()}
		if _, err := fleet.Client().Schedule(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		deliveries := fleet.Advance(48 * time.Hour)
		last := deliveries[len(deliveries)-1]
		fmt.Println(len(deliveries), "deliveries, all of them attempt", last.Attempt)
		fmt.Println(last.Due.Format("Jan 2 15:04"), last.Outcome, last.Err)
	})
	// Output:
	// 7 deliveries, all of them attempt 1
	// Dec 2 10:00 parked the bank hasn't decided
}
