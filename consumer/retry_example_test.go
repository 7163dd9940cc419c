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

// A callback that fails is tried again after a minute and after ten, and then parked.
// Somebody repairs the shop and makes the task due again.
func Example_retry() {
	duefleettest.Example(func(t testing.TB) {
		broken := true
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics: []string{"callbacks"},
			Start:  time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
			Policy: consumer.Delays(time.Minute, 10*time.Minute),
			Handler: func(context.Context, task.Delivery) error {
				if broken {
					return errors.New("the shop answers 502")
				}
				return nil
			},
		})
		ctx, tasks := t.Context(), fleet.Client()
		request := producer.Request{Topic: "callbacks", ID: "p-1", When: producer.In(30 * time.Minute)}
		if _, err := tasks.Schedule(ctx, request); err != nil {
			t.Fatal(err)
		}
		show := func(deliveries []duefleettest.Delivery) {
			for _, d := range deliveries {
				fmt.Printf("%s attempt %d: %s\n", d.Due.Format("15:04"), d.Attempt, d.Outcome)
			}
		}
		show(fleet.Advance(time.Hour))
		stored, _ := fleet.Task("callbacks", "p-1")
		fmt.Printf("%s: %s\n", stored.State, stored.Reason)
		broken = false
		if _, err := tasks.Reschedule(ctx, "callbacks", "p-1", producer.Now()); err != nil {
			t.Fatal(err)
		}
		show(fleet.Advance(0))
	})
	// Output:
	// 10:30 attempt 1: retried
	// 10:31 attempt 2: retried
	// 10:41 attempt 3: parked
	// parked: the shop answers 502
	// 11:00 attempt 1: done
}
