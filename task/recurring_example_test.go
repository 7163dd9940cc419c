package task_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// A report is due on the first of each month. FirstDue is the time of this step, also in a
// retry. Scheduled is the same in all steps, so it is no base for the next one.
func Example_recurring() {
	duefleettest.Example(func(t testing.TB) {
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics: []string{"reports"},
			Start:  time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC),
			Handler: func(_ context.Context, d task.Delivery) error {
				fmt.Println("the report of", d.FirstDue.UTC().AddDate(0, -1, 0).Format("January"))
				return d.NextWhen(task.At(d.FirstDue.UTC().AddDate(0, 1, 0)), nil)
			},
		})
		_, err := fleet.Client().Schedule(t.Context(), producer.Request{
			Topic: "reports", ID: "monthly", When: task.At(time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)),
		})
		if err != nil {
			t.Fatal(err)
		}
		fleet.Advance(90 * 24 * time.Hour)
	})
	// Output:
	// the report of November
	// the report of December
	// the report of January
}
