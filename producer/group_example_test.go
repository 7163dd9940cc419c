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

// All tasks of a customer are in one group, whatever their IDs are. When the customer leaves,
// one call removes them.
func Example_group() {
	duefleettest.Example(func(t testing.TB) {
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics: []string{"billing"},
			Start:  time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
			Handler: func(_ context.Context, d task.Delivery) error {
				fmt.Println(d.Due.UTC().Format("15:04"), d.ID, "of", d.Group)
				return nil
			},
		})
		ctx, tasks := t.Context(), fleet.Client()
		for i, id := range []string{"reminder-1", "invoice-5", "reminder-2"} {
			_, err := tasks.Schedule(ctx, producer.Request{
				Topic: "billing", ID: id, Group: "customer-7", When: producer.In(time.Duration(i+1) * time.Hour),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		fleet.Advance(time.Hour)
		moved, err := tasks.RescheduleGroup(ctx, "billing", "customer-7", producer.In(30*time.Minute))
		fmt.Println(moved, "moved", err)
		cancelled, err := tasks.CancelGroup(ctx, "billing", "customer-7")
		fmt.Println(cancelled, "cancelled", err)
		fleet.Advance(24 * time.Hour)
	})
	// Output:
	// 11:00 reminder-1 of customer-7
	// 2 moved <nil>
	// 2 cancelled <nil>
}
