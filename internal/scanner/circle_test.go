package scanner

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// refusedAsLoop waits until a message that goes round is in one of the queues for refused
// messages. It returns how often messages were taken in.
func (l *lone) refusedAsLoop(client *amqp.Channel, queues ...string) int {
	l.t.Helper()
	check.Until(l.t, "the message to be refused", func() bool {
		for _, queue := range queues {
			d, there, err := client.Get(queue, true)
			check.OK(l.t, err)
			if there && d.Headers["x-duefleet-refused-class"] != "loop" {
				l.t.Fatalf("refused: %v", d.Headers)
			}
			if there {
				return true
			}
		}
		return false
	})
	return l.takenIn()
}

// TestAMessageInACircleOfTopicsIsRefused: bindings that no document has bring what each
// topic delivers to the other one's intake.
func TestAMessageInACircleOfTopicsIsRefused(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{
		"orders":   declaring("orders", "shards: 1", "tick: 20ms", "exchange: a", "intake: {exchange: in, queue: q}"),
		"payments": declaring("payments", "shards: 1", "tick: 20ms", "exchange: b", "intake: {exchange: too, queue: p}"),
	}, nil)
	l.start()
	client := servertest.Channel(t, l.rabbit)
	for _, queue := range []string{"q", "p"} {
		check.Until(t, "a consumer", func() bool { return hasConsumer(l, queue) })
	}
	check.OK(l.t, client.ExchangeBind("too", "key", "a", false, nil))
	check.OK(l.t, client.ExchangeBind("in", "key", "b", false, nil))
	check.OK(l.t, client.PublishWithContext(t.Context(), "in", "key", true, false, amqp.Publishing{}))
	if n := l.refusedAsLoop(client, "q.refused", "p.refused"); n != 16 {
		t.Errorf("taken in %d times", n)
	}
}

// TestAMessageThatCopiesItselfToTheIntakeIsRefused: RabbitMQ's default exchange brings the
// copy in CC to the intake's queue.
func TestAMessageThatCopiesItselfToTheIntakeIsRefused(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": "{shards: 1, tick: 20ms, exchange: '', intake: {exchange: in, queue: q}}"},
		nil)
	client := servertest.Channel(t, l.rabbit)
	in := forward.Inlet{Exchange: "in", Type: amqp.ExchangeTopic, Queue: "q", Refused: "q.refused", Canary: "in.canary",
		Declare: true}
	check.OK(l.t, in.Prepare(client))
	_, err := client.QueueDeclare("due", true, false, false, false, nil)
	check.OK(l.t, err)
	l.start()
	check.OK(l.t, client.PublishWithContext(t.Context(), "in", "due", true, false,
		amqp.Publishing{Headers: amqp.Table{"CC": []any{"q"}}}))
	if n := l.refusedAsLoop(client, "q.refused"); n != 16 {
		t.Errorf("taken in %d times", n)
	}
}
