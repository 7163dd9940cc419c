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

// A cart is forgotten an hour after its last change. Each change moves the task.
func Example_reschedule() {
	duefleettest.Example(func(t testing.TB) {
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics: []string{"carts"},
			Start:  time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
			Handler: func(_ context.Context, d task.Delivery) error {
				fmt.Printf("%s forget %s of %s\n", d.Due.UTC().Format("15:04"), d.ID, d.Payload)
				return nil
			},
		})
		ctx, tasks := t.Context(), fleet.Client()
		request := producer.Request{
			Topic: "carts", ID: "c-17", When: producer.In(time.Hour), Payload: []byte("ann"),
		}
		if _, err := tasks.Schedule(ctx, request); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			fleet.Advance(40 * time.Minute)
			due, err := tasks.Reschedule(ctx, "carts", "c-17", producer.In(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println(fleet.Now().Format("15:04"), "changed, kept until", due.Format("15:04"))
		}
		fleet.Advance(24 * time.Hour)
		_, err := tasks.Reschedule(ctx, "carts", "c-17", producer.In(time.Hour))
		fmt.Println("delivered:", errors.Is(err, task.ErrNotFound))
	})
	// Output:
	// 10:40 changed, kept until 11:40
	// 11:20 changed, kept until 12:20
	// 12:20 forget c-17 of ann
	// delivered: true
}
