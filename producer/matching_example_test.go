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

// A customer asks for an hour more on all reminders, and later for no more of them. A dry run
// counts first.
func Example_matching() {
	duefleettest.Example(func(t testing.TB) {
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics: []string{"reminders"},
			Start:  time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
			Handler: func(_ context.Context, d task.Delivery) error {
				fmt.Println(d.Due.UTC().Format("15:04"), d.ID)
				return nil
			},
		})
		ctx, tasks := t.Context(), fleet.Client()
		for i, id := range []string{"ann:1", "ann:2", "ben:1"} {
			request := producer.Request{Topic: "reminders", ID: id, When: producer.In(time.Duration(i+1) * time.Hour)}
			if _, err := tasks.Schedule(ctx, request); err != nil {
				t.Fatal(err)
			}
		}
		ann := producer.Matching{Topic: "reminders", Prefix: "ann:", DryRun: true}
		counted, err := tasks.ShiftMatching(ctx, ann, time.Hour)
		fmt.Println(counted.Changed, "would be shifted", err)
		ann.DryRun = false
		shifted, err := tasks.ShiftMatching(ctx, ann, time.Hour)
		fmt.Println(shifted.Changed, "shifted", err)
		fleet.Advance(2 * time.Hour)
		cancelled, err := tasks.CancelMatching(ctx, ann)
		fmt.Println(cancelled.Changed, "cancelled", err)
		fleet.Advance(24 * time.Hour)
		_, err = tasks.CancelMatching(ctx, producer.Matching{Topic: "reminders"})
		fmt.Println(err)
	})
	// Output:
	// 2 would be shifted <nil>
	// 2 shifted <nil>
	// 12:00 ann:1
	// 1 cancelled <nil>
	// 13:00 ben:1
	// matching: must set Prefix, Group, State, DueFrom or DueTo, or All for all tasks; got none of them
}
