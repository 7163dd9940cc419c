package producer

import (
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestMessagesOfTheIntakeAreTasks: Get, List, Reschedule and Cancel act on a message that
// came through an intake, also while the shard count changes. Schedule replaces it.
func TestMessagesOfTheIntakeAreTasks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.client()
	message := amqpmsg.Message{
		RoutingKey: "order.eu", Properties: amqpmsg.Properties{ContentType: "text/plain", AppID: "shop"},
		Headers: map[string]any{"n": int64(7), "list": []any{true, nil}}, Body: []byte("payload"),
	}
	body, err := amqpmsg.Encode(message)
	check.OK(f.t, err)
	want := fmt.Sprintf("%+v", task.AMQP{RoutingKey: message.RoutingKey, Properties: message.Properties,
		Headers: message.Headers})
	ids := make([]string, 8) // some of them move
	for i := range ids {
		ids[i] = fmt.Sprint("m-", i)
	}
	put := func() {
		t.Helper()
		for _, id := range ids {
			entry := shard.Entry{ID: id, When: task.In(time.Hour), Body: body}
			check.OK(f.t, router.New(f.store).Topic(orders).Schedule(f.t.Context(), []shard.Entry{entry})[0].Err)
		}
	}
	put()
	stored := func(s Stored) {
		t.Helper()
		if s.AMQP == nil {
			t.Fatalf("%+v has no message", s)
		}
		check.Equal(t, "message", fmt.Sprintf("%+v", *s.AMQP), want)
		check.Equal(t, "content type", s.ContentType, "text/plain")
		check.Equal(t, "headers and options", len(s.Headers) == 0 && s.Options == task.Options{}, true)
	}
	due := time.Now().Add(2 * time.Hour).Truncate(time.Millisecond).UTC()
	get := func(moved bool) {
		t.Helper()
		for _, id := range ids {
			s, err := c.Get(f.t.Context(), orders, id)
			check.OK(f.t, err)
			stored(s)
			check.Equal(t, "payload", string(s.Payload), "payload")
			check.Equal(t, "due", s.Due.Equal(due), moved)
		}
	}
	get(false)
	f.begin(4)
	for _, id := range ids {
		_, err = c.Reschedule(f.t.Context(), orders, id, At(due))
		check.OK(f.t, err)
	}
	get(true)
	f.move()
	get(true)
	for _, without := range []bool{false, true} {
		n := 0
		for s, err := range c.List(f.t.Context(), orders, Filter{WithoutPayload: without}) {
			check.OK(f.t, err)
			stored(s)
			check.Equal(t, "payload", len(s.Payload) == 0, without)
			n++
		}
		check.Equal(t, "listed", n, len(ids))
	}
	for _, id := range ids {
		check.OK(f.t, c.Cancel(f.t.Context(), orders, id))
	}
	f.inPlace(nil)
	put()
	_, err = c.Schedule(f.t.Context(), request(ids[0], In(time.Hour)))
	check.OK(f.t, err)
	s, err := c.Get(f.t.Context(), orders, ids[0])
	check.OK(f.t, err)
	check.Equal(t, "the message is replaced", s.AMQP == nil, true)
}
