package consumer

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestAMuxChoosesByTopic: by the exact name, else Fallback, else it parks.
func TestAMuxChoosesByTopic(t *testing.T) {
	t.Parallel()
	var called string
	is := func(name string) Handler {
		return func(context.Context, task.Delivery) error {
			called = name
			return nil
		}
	}
	four := map[string]Handler{"d": nothing, "a": nothing, "c": nothing, "b": nothing, "nil": nil}
	for name, row := range map[string]struct {
		mux    Mux
		topic  string
		called string
		parked string
	}{
		"the topic's": {
			Mux{Topics: map[string]Handler{orders: is("o"), bills: is("b")}, Fallback: is("f")}, orders, "o",
			"",
		},
		"another topic's": {Mux{Topics: map[string]Handler{orders: is("o"), bills: is("b")}}, bills, "b", ""},
		"the exact name alone": {
			Mux{Topics: map[string]Handler{"Orders": is("O"), "order": is("s")}, Fallback: is("f")}, orders, "f",
			"",
		},
		"a nil one": {Mux{Topics: map[string]Handler{orders: nil}, Fallback: is("f")}, orders, "f", ""},
		"nothing": {
			Mux{}, orders, "",
			"no handler for topic orders: consumer.Mux has none, and no Fallback; add a handler, then replay the task",
		},
		"one of another": {
			Mux{Topics: map[string]Handler{bills: is("b"), orders: nil}}, orders, "",
			"no handler for topic orders: consumer.Mux has bills, and no Fallback; add a handler, then replay the task",
		},
		"many of others": {
			Mux{Topics: four}, orders, "",
			"no handler for topic orders: consumer.Mux has a, b, c and 1 more, and no Fallback; " +
				"add a handler, then replay the task",
		},
	} {
		called = ""
		err := row.mux.Handler(t.Context(), task.NewDelivery(task.Task{Topic: row.topic, ID: "a"}, nil))
		if called != row.called {
			t.Errorf("%s: %q was called, want %q", name, called, row.called)
		}
		if got := fmt.Sprint(err); got != row.parked && row.parked != "" || IsParked(err) != (row.parked != "") {
			t.Errorf("%s: got %s, want %s", name, got, row.parked)
		}
	}
}

// TestATaskOfATopicWithoutAHandlerIsParked with the topic in the reason. Tasks of other
// topics are handled.
func TestATaskOfATopicWithoutAHandlerIsParked(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	other := w.makeBills()
	c := w.consume(Config{Handler: Mux{Topics: map[string]Handler{orders: nothing}}.Handler})
	w.deliver(bills, 1)
	w.deliver(orders, 1)
	check.Until(t, "the one is parked, the other done", func() bool {
		return countedOf(c, bills, park) == 1 && countedOf(c, orders, done) == 1
	})
	var reason string
	check.OK(w.t, admin.Parked{Topic: other}.Each(t.Context(), func(r shard.Record) bool {
		reason = r.Reason
		return true
	}))
	want := "no handler for topic bills: consumer.Mux has orders, and no Fallback; add a handler, then replay the task"
	if reason != want {
		t.Errorf("parked with %q, want %q", reason, want)
	}
	c.stop()
	if n := w.waiting(queue); n != 0 {
		t.Errorf("%d messages were left", n)
	}
}

// TestConsumersOfSeveralQueuesShareARedisClient: if one stops, the client stays open for
// the other.
func TestConsumersOfSeveralQueuesShareARedisClient(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.makeOrders()
	_, err := w.channel.QueueDeclare("second", true, false, false, false, nil)
	check.OK(w.t, err)
	one := w.consume(Config{Handler: nothing})
	two := w.consume(Config{Handler: nothing, Queue: "second"})
	w.deliver(orders, 1)
	check.Until(t, "the first handles its queue", func() bool { return counted(one, done) == 1 })
	one.stop()
	check.OK(w.t, w.channel.PublishWithContext(t.Context(), "", "second", false, false, message(nil)))
	check.Until(t, "the second goes on", func() bool { return counted(two, done) == 1 })
}

// TestATestOfAHandlerSeesWhatItDecides, also if the error is wrapped.
func TestATestOfAHandlerSeesWhatItDecides(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err             error
		parked, dropped bool
	}{
		"nothing":        {nil, false, false},
		"a failure":      {errTest, false, false},
		"parked":         {Park(errTest), true, false},
		"dropped":        {Drop(errTest), false, true},
		"parked wrapped": {fmt.Errorf("charge: %w", Park(errTest)), true, false},
		"dropped joined": {errors.Join(errTest, Drop(nil)), false, true},
	} {
		if IsParked(row.err) != row.parked || IsDropped(row.err) != row.dropped {
			t.Errorf("%s: parked %v, dropped %v", name, IsParked(row.err), IsDropped(row.err))
		}
	}
}
