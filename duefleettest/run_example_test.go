package duefleettest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/task"
)

// Fatalf ends the example, and its message is in the output.
func ExampleExample() {
	duefleettest.Example(func(t testing.TB) {
		t.Cleanup(func() { fmt.Println("the fleet ended") })
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics:  []string{"orders"},
			Handler: func(context.Context, task.Delivery) error { return nil },
		})
		fleet.Advance(time.Minute)
		fleet.Advance(-time.Minute)
		fmt.Println("Advance returned")
	})
	// Output:
	// duefleettest: Advance(-1m0s): the clock moves forward only
	// the example failed
	// the fleet ended
}
