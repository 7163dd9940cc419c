package forward_test

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func deadLettered(queueType, dead string) forward.Route {
	return forward.Route{Exchange: "orders", RoutingKey: "k", Declare: &forward.Declare{
		Type: amqp.ExchangeDirect, Queue: "orders.due", QueueType: queueType, DeadLetter: dead,
	}}
}

// TestWhatAConsumerRejectsIsKept: in the dead-letter queue, with its properties; and
// another scanner may declare the same.
func TestWhatAConsumerRejectsIsKept(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum", ""} {
		t.Run("queue type "+queueType, func(t *testing.T) {
			t.Parallel()
			url := servertest.RabbitMQ(t)
			route, cfg := deadLettered(queueType, "orders.dead"), forward.Config{URLs: []string{url}}
			p, got := publisher(t, connect(t, cfg), "orders", route)
			ready(t, p)
			other, _ := publisher(t, connect(t, cfg), "orders", route)
			ready(t, other)
			batch := messages("orders", "rejected", 3)
			publish(t, p, batch...)
			got.all(batch...)
			ch := servertest.Channel(t, url)
			deliveries, err := ch.Consume("orders.due", "", false, false, false, false, nil)
			check.OK(t, err)
			for range batch {
				d := check.Receive(t, "a message to reject", deliveries)
				check.OK(t, d.Reject(false))
			}
			kept, err := ch.Consume("orders.dead", "", true, false, false, false, nil)
			check.OK(t, err)
			for range batch {
				m := check.Receive(t, "a dead letter", kept)
				why := m.Headers["x-first-death-reason"]
				if !strings.HasPrefix(m.MessageId, "rejected-") || m.Type != "orders" || m.RoutingKey != "k" || why != "rejected" {
					t.Errorf("dead letter %+v", m)
				}
			}
		})
	}
}

// TestAQueueKeepsTheArgumentsItWasMadeWith: what to do is in the reason; and what was in
// force before goes on.
func TestAQueueKeepsTheArgumentsItWasMadeWith(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		for name, row := range map[string]struct {
			made, asked string
			want        []string
		}{
			"made without": {"", "orders.dead", []string{
				"406", "made without dead-letter exchange orders.dead",
				`set_policy -p VHOST dead-letters-of-orders.due '^orders\.due$' '{"dead-letter-exchange":"orders.dead"`,
			}},
			"made with": {"orders.dead", "", []string{"406", "set declare.dead_letter to it"}},
		} {
			t.Run(queueType+", "+name, func(t *testing.T) {
				t.Parallel()
				url := servertest.RabbitMQ(t)
				p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "orders", deadLettered(queueType, row.made))
				ready(t, p)
				p.SetRoute(deadLettered(queueType, row.asked))
				for _, want := range row.want {
					blocked(t, p, forward.Precondition, want)
				}
				ch := servertest.Channel(t, url)
				if _, err := ch.QueueDeclarePassive("orders.dead", true, false, false, false, nil); err != nil {
					t.Errorf("the dead-letter queue, which a policy needs: %v", err)
				}
				p.SetRoute(deadLettered(queueType, row.made))
				ready(t, p)
				m := messages("orders", "then", 1)[0]
				publish(t, p, m)
				if r := got.all(m)[0]; r.Outcome != forward.Confirmed {
					t.Errorf("%+v, want confirmed", r)
				}
			})
		}
	}
}
