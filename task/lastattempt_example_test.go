package task_test

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

// A handler tells the customer only if no other attempt follows.
func ExampleDelivery_LastAttempt() {
	send := func(context.Context) error { return errors.New("the gateway is away") }
	duefleettest.Example(func(t testing.TB) {
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics: []string{"messages"}, Policy: consumer.Fixed(time.Minute, 3),
			Handler: func(ctx context.Context, d task.Delivery) error {
				err := send(ctx)
				fmt.Printf("attempt %d: %v\n", d.Attempt, err)
				if err != nil && d.LastAttempt(err) {
					fmt.Println("tell the customer")
				}
				return err
			},
		})
		request := producer.Request{Topic: "messages", ID: "m-1", When: task.In(time.Hour)}
		if _, err := fleet.Client().Schedule(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		fleet.Advance(2 * time.Hour)
	})
	// Output:
	// attempt 1: the gateway is away
	// attempt 2: the gateway is away
	// attempt 3: the gateway is away
	// tell the customer
}
