package producer

import (
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
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
	f.ok(err)
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
			f.ok(router.New(f.store).Topic(orders).Schedule(f.ctx(), []shard.Entry{entry})[0].Err)
		}
	}
	put()
	check := func(s Stored) {
		t.Helper()
		if s.AMQP == nil {
			t.Fatalf("%+v has no message", s)
		}
		equal(t, "message", fmt.Sprintf("%+v", *s.AMQP), want)
		equal(t, "content type", s.ContentType, "text/plain")
		equal(t, "headers and options", len(s.Headers) == 0 && s.Options == task.Options{}, true)
	}
	due := time.Now().Add(2 * time.Hour).Truncate(time.Millisecond).UTC()
	get := func(moved bool) {
		t.Helper()
		for _, id := range ids {
			s, err := c.Get(f.ctx(), orders, id)
			f.ok(err)
			check(s)
			equal(t, "payload", string(s.Payload), "payload")
			equal(t, "due", s.Due.Equal(due), moved)
		}
	}
	get(false)
	f.begin(4)
	for _, id := range ids {
		_, err = c.Reschedule(f.ctx(), orders, id, At(due))
		f.ok(err)
	}
	get(true)
	f.move()
	get(true)
	for _, without := range []bool{false, true} {
		n := 0
		for s, err := range c.List(f.ctx(), orders, Filter{WithoutPayload: without}) {
			f.ok(err)
			check(s)
			equal(t, "payload", len(s.Payload) == 0, without)
			n++
		}
		equal(t, "listed", n, len(ids))
	}
	for _, id := range ids {
		f.ok(c.Cancel(f.ctx(), orders, id))
	}
	f.inPlace(nil)
	put()
	_, err = c.Schedule(f.ctx(), request(ids[0], In(time.Hour)))
	f.ok(err)
	s, err := c.Get(f.ctx(), orders, ids[0])
	f.ok(err)
	equal(t, "the message is replaced", s.AMQP == nil, true)
}
