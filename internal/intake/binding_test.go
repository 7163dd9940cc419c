package intake

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
)

// storedAgain publishes until a task is stored.
func (h *harness) storedAgain() {
	h.t.Helper()
	check.Until(h.t, "a message to reach the intake again", func() bool {
		h.publish(newMessage("after", HeaderIn, "1h"))
		return len(h.records()) > 0
	})
}

// TestAnExchangeThatAPublisherMadeAgainIsBound: RabbitMQ confirms what nobody is bound for.
func TestAnExchangeThatAPublisherMadeAgainIsBound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.bind = 100 * time.Millisecond
	h.start()
	check.Until(t, "a consumer", func() bool { return h.consumers() == 1 })
	check.OK(h.t, h.client.ExchangeDelete(exchange, false, false))
	check.OK(h.t, h.client.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil))
	h.storedAgain()
}

// TestAnExchangeThatWasDeletedIsMadeAgain: the log says that it was missing.
func TestAnExchangeThatWasDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.bind = 100 * time.Millisecond
	h.start()
	check.Until(t, "a consumer", func() bool { return h.consumers() == 1 })
	check.OK(h.t, h.client.ExchangeDelete(exchange, false, false))
	check.Until(t, "the intake to say what was missing", func() bool {
		return strings.Contains(h.log.String(), "intake makes again what was missing")
	})
	h.publish(newMessage("a", HeaderIn, "1h"))
	h.settled()
	if n := len(h.records()); n != 1 || strings.Contains(h.log.String(), "stands still") {
		t.Errorf("%d tasks, log:\n%s", n, h.log)
	}
}

// TestABindingThatWasRemovedIsMadeAgain: also one that somebody removed by hand.
func TestABindingThatWasRemovedIsMadeAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.pace.bind = 100 * time.Millisecond
	h.start()
	check.Until(t, "a consumer", func() bool { return h.consumers() == 1 })
	check.OK(h.t, h.client.QueueUnbind(queue, "#", exchange, nil))
	h.storedAgain()
}

// consumers returns how many consumers the queue has.
func (h *harness) consumers() int {
	h.t.Helper()
	q, err := h.client.QueueDeclarePassive(queue, true, false, false, false, nil)
	check.OK(h.t, err)
	return q.Consumers
}
