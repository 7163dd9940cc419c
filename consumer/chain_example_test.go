package consumer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/duefleettest"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// A chain is one task with several steps: an order is cancelled, and its buyer gets a mail
// a day later.
func Example_chain() {
	handler := func(_ context.Context, d task.Delivery) error {
		fmt.Println(d.Due.UTC().Format("Jan 2 15:04"), d.ID, string(d.Payload))
		switch string(d.Payload) {
		case "cancel":
			return d.NextWhen(task.In(24*time.Hour), []byte("mail"))
		case "mail":
			return nil
		}
		return consumer.Park(fmt.Errorf("no step of an order: %q", d.Payload))
	}
	duefleettest.Example(func(t testing.TB) {
		fleet := duefleettest.New(t, duefleettest.Config{
			Topics: []string{"orders"}, Start: time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC), Handler: handler,
		})
		_, err := fleet.Client().Schedule(t.Context(), producer.Request{
			Topic: "orders", ID: "4711", When: producer.In(30 * time.Minute), Payload: []byte("cancel"),
		})
		if err != nil {
			t.Fatal(err)
		}
		fleet.Advance(48 * time.Hour)
	})
	// Output:
	// Dec 1 10:30 4711 cancel
	// Dec 2 10:30 4711 mail
}
