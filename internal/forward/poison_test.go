package forward_test

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// RabbitMQ ends the channel for a CC or BCC header that is text. TestPoisonIsRefusedAlone
// depends on that.
func TestTextAsCCEndsTheChannel(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"CC", "BCC"} {
		ch := servertest.Channel(t, servertest.RabbitMQ(t))
		closed := ch.NotifyClose(make(chan *amqp.Error, 1))
		check.OK(t, ch.Publish("", "q", false, false, amqp.Publishing{Headers: amqp.Table{key: "other"}}))
		if e := check.Receive(t, "the end of the channel for "+key, closed); e.Code != amqp.PreconditionFailed {
			t.Errorf("%s: %v, want a 406", key, e)
		}
	}
}

// A message that would end the channel is refused alone; its topic goes on.
func TestPoisonIsRefusedAlone(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "topic", forward.Route{
		Exchange: "e", RoutingKey: "k", Declare: &forward.Declare{Queue: "q"},
	})
	ready(t, p)
	long := strings.Repeat("x", 256)
	poison := messages("topic", "poison", 6)
	poison[0].Task.Headers = map[string]string{"CC": "other"}
	poison[1].Task.Headers = map[string]string{"BCC": "other"}
	poison[2].Task.Headers = map[string]string{long: "v"}
	poison[3].Task.ID = long
	poison[4].Task.ContentType = long
	poison[5].Task.Headers = map[string]string{"large": strings.Repeat("v", 130<<10)}
	fine := messages("topic", "fine", 6)
	fine[5].Task.Headers = map[string]string{"large": strings.Repeat("v", task.MaxHeaderBytes)}
	for i := range poison {
		publish(t, p, poison[i], fine[i])
	}
	for _, r := range got.all(poison...) {
		if r.Outcome != forward.Refused || r.Reason == "" {
			t.Errorf("%.20q: %v (%s), want refused", r.Message.Task.ID, r.Outcome, r.Reason)
		}
	}
	if n := outcomes(got.all(fine...)); n[forward.Confirmed] != len(fine) {
		t.Errorf("%v, want the others confirmed", n)
	}
}
