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

// order is the payload of both topics.
type order struct {
	Number int `json:"number"`
}

// Two topics have handlers of their own, which take payloads in JSON.
func Example_topics() {
	mux := consumer.Mux{Topics: map[string]consumer.Handler{
		"reminders": consumer.JSON(func(_ context.Context, _ task.Delivery, o order) error {
			fmt.Println("remind of order", o.Number)
			return nil
		}),
		"timeouts": consumer.JSON(func(_ context.Context, _ task.Delivery, o order) error {
			fmt.Println("cancel order", o.Number)
			return nil
		}),
	}}
	duefleettest.Example(func(t testing.TB) {
		fleet := duefleettest.New(t, duefleettest.Config{Topics: []string{"reminders", "timeouts"}, Handler: mux.Handler})
		for topic, minutes := range map[string]time.Duration{"timeouts": 30, "reminders": 20} {
			request := producer.Request{Topic: topic, ID: "o-4711", When: producer.In(minutes * time.Minute)}
			if err := request.SetJSON(order{Number: 4711}); err != nil {
				t.Fatal(err)
			}
			if _, err := fleet.Client().Schedule(t.Context(), request); err != nil {
				t.Fatal(err)
			}
		}
		fleet.Advance(time.Hour)
	})
	// Output:
	// remind of order 4711
	// cancel order 4711
}
