package e2e_test

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestAbandonedIntake: the queue of an intake is unbound while scanners run, although they
// make the binding of an intake that they serve again and again. Publishers then learn that
// nobody takes their messages.
func TestAbandonedIntake(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.begin()
	ch := servertest.Channel(t, w.settings.RabbitMQURL)
	check.OK(t, ch.Confirm(false))
	returns := ch.NotifyReturn(make(chan amqp.Return, 10))
	queue := func(name string) amqp.Queue {
		t.Helper()
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		check.OK(t, err)
		return q
	}
	publish := func(id string) (returned bool) {
		t.Helper()
		message := amqp.Publishing{MessageId: id, Headers: amqp.Table{"x-duefleet-in": "1h"}}
		sent, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "in", "key", true, false, message)
		check.OK(t, err)
		_, err = sent.WaitContext(check.Context(t))
		check.OK(t, err)
		select {
		case <-returns:
			return true
		default:
			return false
		}
	}
	stored := func(n int64) func() bool {
		return rarely(func() bool { return w.status().Topic("orders").Pending == n })
	}
	check.OK(t, ch.ExchangeDeclare("in", amqp.ExchangeTopic, true, false, false, false, nil))
	must(t, w.scanner("topic", "set", "orders", "intake.exchange=in", "intake.queue=old"))
	check.Until(t, "the intake to be bound", rarely(func() bool { return !publish("first") }))
	check.Until(t, "its message to be stored", stored(1))
	out := must(t, w.scanner("topic", "set", "orders", "intake.queue=new", "--unbind-old"))
	if !strings.Contains(out.Stdout, "queue old is unbound from exchange in; messages that lie in it: 0") {
		t.Errorf("set says %s", out.Stdout)
	}
	if publish("second") {
		t.Error("the new queue isn't bound")
	}
	check.Until(t, "the second message to be stored", stored(2))
	if n := queue("old").Messages; n != 0 {
		t.Errorf("%d messages in the old queue", n)
	}
	out = must(t, w.scanner("topic", "rm", "orders", "--purge", "--unbind-intake", "--yes"))
	if !strings.Contains(out.Stdout, "queue new is unbound from exchange in; messages that lie in it: 0") {
		t.Errorf("rm says %s", out.Stdout)
	}
	if !publish("third") || queue("new").Messages != 0 {
		t.Error("the queue is still bound")
	}
}
