package duefleettest_test

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

// shop is an application: an order that isn't paid within thirty minutes is cancelled.
type shop struct {
	tasks  *producer.Client
	orders map[string]string // state by ID
}

func (s *shop) order(ctx context.Context, id string) error {
	s.orders[id] = "open"
	_, err := s.tasks.Schedule(ctx, producer.Request{Topic: "orders", ID: id, When: producer.In(30 * time.Minute)})
	return err
}

func (s *shop) pay(ctx context.Context, id string) {
	s.orders[id] = "paid"
	_ = s.tasks.Cancel(ctx, "orders", id) // to save the delivery: the handler looks itself
}

func (s *shop) timeout(_ context.Context, d task.Delivery) error {
	if s.orders[d.ID] == "open" {
		s.orders[d.ID] = "cancelled"
	}
	return nil
}

func newShop(t *testing.T) (*shop, *duefleettest.Fleet) {
	s := &shop{orders: map[string]string{}}
	fleet := duefleettest.New(t, duefleettest.Config{
		Topics: []string{"orders"}, Handler: s.timeout, Policy: consumer.Fixed(time.Minute, 5),
	})
	s.tasks = fleet.Client()
	return s, fleet
}

func TestAnUnpaidOrderIsCancelledAfterThirtyMinutes(t *testing.T) {
	t.Parallel()
	s, fleet := newShop(t)
	if err := s.order(t.Context(), "4711"); err != nil {
		t.Fatal(err)
	}
	fleet.Advance(29 * time.Minute)
	if s.orders["4711"] != "open" {
		t.Errorf("the order is %s after 29 minutes", s.orders["4711"])
	}
	fleet.Advance(time.Minute)
	if s.orders["4711"] != "cancelled" {
		t.Errorf("the order is %s after 30 minutes", s.orders["4711"])
	}
}

func TestAPaidOrderIsNotCancelled(t *testing.T) {
	t.Parallel()
	s, fleet := newShop(t)
	if err := s.order(t.Context(), "4711"); err != nil {
		t.Fatal(err)
	}
	fleet.Advance(20 * time.Minute)
	s.pay(t.Context(), "4711")
	if deliveries := fleet.Advance(time.Hour); len(deliveries) > 0 {
		t.Errorf("got %+v, want no delivery", deliveries)
	}
	if s.orders["4711"] != "paid" {
		t.Errorf("the order is %s", s.orders["4711"])
	}
}

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
