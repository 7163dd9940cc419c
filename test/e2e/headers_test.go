package e2e_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestHeadersExchange: the queue that scanners declare gets every message, and one that is
// bound by hand gets those with its headers.
func TestHeadersExchange(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.begin()
	must(t, w.scanner("topic", "create", "parcels", "declare.type=headers", "declare.queue=all", "intake.exchange=in"))
	ch := servertest.Channel(t, w.settings.RabbitMQURL)
	_, err := ch.QueueDeclare("eu", true, false, false, false, nil)
	check.OK(t, err)
	check.OK(t, ch.QueueBind("eu", "", "parcels", false, amqp.Table{"x-match": "all", "region": "eu"}))
	for _, region := range []string{"eu", "us"} {
		message := amqp.Publishing{MessageId: region, Headers: amqp.Table{"region": region, "x-duefleet-in": "10ms"}}
		check.OK(t, ch.PublishWithContext(t.Context(), "in", "key", true, false, message))
	}
	taken := func(queue string) (id string) {
		check.Until(t, "a message in "+queue, rarely(func() bool {
			d, found, err := ch.Get(queue, true)
			check.OK(t, err)
			id = d.MessageId
			return found
		}))
		return id
	}
	if id := taken("eu"); id != "eu" {
		t.Errorf("queue eu got %s", id)
	}
	if first, second := taken("all"), taken("all"); first == second {
		t.Errorf("queue all got %s twice", first)
	}
	if q, err := ch.QueueDeclarePassive("eu", true, false, false, false, nil); err != nil || q.Messages != 0 {
		t.Errorf("queue eu has %d more, %v", q.Messages, err)
	}
}
