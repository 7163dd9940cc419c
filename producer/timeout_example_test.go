package producer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// An order that isn't paid within thirty minutes is cancelled. The fleet of package
// duefleettest runs the handler, on a clock that the example moves.
func Example_timeout() {
	duefleettest.Example(func(t testing.TB) {
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics: []string{"orders"},
			Start:  time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
			Handler: func(_ context.Context, d task.Delivery) error {
				fmt.Printf("%s cancel order %s\n", d.Due.UTC().Format("15:04"), d.ID)
				return nil
			},
		})
		ctx, tasks := t.Context(), fleet.Client()
		for _, id := range []string{"4711", "4712"} {
			due, err := tasks.Schedule(ctx, producer.Request{
				Topic: "orders", ID: id, When: producer.In(30 * time.Minute),
			})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("%s order %s, to pay until %s\n", fleet.Now().Format("15:04"), id, due.Format("15:04"))
		}
		fleet.Advance(10 * time.Minute)
		fmt.Println(fleet.Now().Format("15:04"), "order 4711 is paid")
		if err := tasks.Cancel(ctx, "orders", "4711"); err != nil {
			t.Fatal(err)
		}
		fleet.Advance(time.Hour)
	})
	// Output:
	// 10:00 order 4711, to pay until 10:30
	// 10:00 order 4712, to pay until 10:30
	// 10:10 order 4711 is paid
	// 10:30 cancel order 4712
}
