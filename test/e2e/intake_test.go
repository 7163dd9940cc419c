package e2e_test

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const (
	intakeQueue  = "duefleet.orders.intake"
	refusedQueue = intakeQueue + ".refused"
	// workQueue has the messages that are due; a consumer rejects them.
	workQueue = "work"
)

// client is an application that publishes to the intake of orders and consumes what is due.
type client struct {
	t  *testing.T
	ch *amqp.Channel
}

// newClientOf returns a client of a fixture whose scanners serve the intake "in".
func newClientOf(w *fixture) *client {
	w.t.Helper()
	c := &client{w.t, servertest.Channel(w.t, w.settings.RabbitMQURL)}
	check.Until(w.t, "the intake to be served", rarely(func() bool {
		q, err := w.channel().QueueDeclarePassive(intakeQueue, true, false, false, false, nil)
		return err == nil && q.Consumers > 0
	}))
	return c
}

// publish publishes a message with an ID to an exchange. headers are pairs of key and value.
func (c *client) publish(id string, headers amqp.Table) {
	c.t.Helper()
	p := amqp.Publishing{MessageId: id, Headers: headers, DeliveryMode: amqp.Persistent}
	check.OK(c.t, c.ch.PublishWithContext(c.t.Context(), "in", "orders.due", true, false, p))
}

// take returns the next message of a queue, which isn't acked.
func (c *client) take(queue string) (d amqp.Delivery) {
	c.t.Helper()
	check.Until(c.t, "a message in "+queue, func() (got bool) {
		var err error
		d, got, err = c.ch.Get(queue, false)
		check.OK(c.t, err)
		return got
	})
	return d
}

// rejecting declares workQueue, whose rejected messages go to an exchange, and binds it to orders.
func (c *client) rejecting(deadLetters string) {
	c.t.Helper()
	_, err := c.ch.QueueDeclare(workQueue, true, false, false, false, amqp.Table{"x-dead-letter-exchange": deadLetters})
	check.OK(c.t, err)
	check.OK(c.t, c.ch.QueueBind(workQueue, "orders.due", "orders", false, nil))
}

// newTakenIn returns a fleet of one scanner that serves the intake "in" of orders.
func newTakenIn(t *testing.T) *client {
	t.Helper()
	topic := fleet.DeclaredTopic("orders", fleet.Topic{"intake": map[string]any{"exchange": "in"}})
	w := newFixture(t, map[string]fleet.Topic{"orders": topic})
	w.start(1)
	return newClientOf(w)
}

// deaths returns how often a message was rejected from workQueue, by its x-death.
func deaths(d amqp.Delivery) (n int64) {
	all, _ := d.Headers["x-death"].([]any)
	for _, one := range all {
		death, _ := one.(amqp.Table)
		if death["queue"] == workQueue && death["reason"] == "rejected" {
			n, _ = death["count"].(int64)
		}
	}
	return n
}

// TestARetryThroughDeadLetteringGoesOn: a consumer rejects a message, which waits a second in a
// queue with a TTL and is dead-lettered into the intake. Its headers count the rounds.
func TestARetryThroughDeadLetteringGoesOn(t *testing.T) {
	t.Parallel()
	c := newTakenIn(t)
	check.OK(t, c.ch.ExchangeDeclare("wait", amqp.ExchangeFanout, true, false, false, false, nil))
	_, err := c.ch.QueueDeclare("wait", true, false, false, false, amqp.Table{"x-message-ttl": 1000,
		"x-dead-letter-exchange": "in"})
	check.OK(t, err)
	check.OK(t, c.ch.QueueBind("wait", "", "wait", false, nil))
	c.rejecting("wait")
	c.publish("a", amqp.Table{"x-delay": int32(1)})
	const rounds = 3
	for round := range int64(rounds) {
		d := c.take(workQueue)
		if hops := fmt.Sprint(d.Headers["x-duefleet-hops"]); deaths(d) != round || hops != "1" || d.MessageId != "a" ||
			d.Headers["x-delay"] != int32(-1) {
			t.Errorf("round %d: %d deaths, headers %v", round, deaths(d), d.Headers)
		}
		check.OK(t, c.ch.Nack(d.DeliveryTag, false, false))
	}
	check.OK(t, c.ch.Ack(c.take(workQueue).DeliveryTag, false))
	if _, refused, err := c.ch.Get(refusedQueue, true); refused || err != nil {
		t.Errorf("a retry that waits is refused, %v", err)
	}
}

// TestARetryWithoutAWaitEnds: the delay of a delivered message is negative. If it is dead-lettered
// into the intake as it is, it is due at once, and the intake refuses it in the end.
func TestARetryWithoutAWaitEnds(t *testing.T) {
	t.Parallel()
	c := newTakenIn(t)
	c.rejecting("in")
	deliveries, err := c.ch.ConsumeWithContext(t.Context(), workQueue, "", false, false, false, false, nil)
	check.OK(t, err)
	c.publish("a", amqp.Table{"x-delay": int32(1)})
	const most = 16 // docs/intake.md, Circles
	for round := range int64(most) {
		d := check.Receive(t, "a delivery", deliveries)
		if d.Headers["x-delay"] != int32(-1) || deaths(d) != round {
			t.Errorf("round %d: %d deaths, headers %v", round, deaths(d), d.Headers)
		}
		check.OK(t, c.ch.Nack(d.DeliveryTag, false, false))
	}
	d := c.take(refusedQueue)
	if d.MessageId != "a" || d.Headers["x-duefleet-refused-class"] != "loop" || deaths(d) != most {
		t.Errorf("refused %q after %d rounds, headers %v", d.MessageId, deaths(d), d.Headers)
	}
	check.Equal(t, "deliveries that are left", len(deliveries), 0)
}

// TestAnOperatorSetsTheHeadOfAnIntakeAside while scanners run and the topic is paused. The
// messages behind it are delivered afterwards.
func TestAnOperatorSetsTheHeadOfAnIntakeAside(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.set("orders", fleet.DeclaredTopic("orders", fleet.Topic{"intake": map[string]any{"exchange": "in"}}))
	w.start(2)
	c := newClientOf(w.fixture)
	must(t, w.scanner("topic", "pause", "orders", "--reason", "a message of the intake is stuck"))
	check.Until(t, "the scanners to leave the queue", rarely(func() bool {
		q, err := c.ch.QueueDeclarePassive(intakeQueue, true, false, false, false, nil)
		check.OK(t, err)
		return q.Consumers == 0
	}))
	for _, id := range []string{"stuck", "b", "c"} {
		c.publish(id, amqp.Table{"x-duefleet-in": "10ms"})
	}
	began := time.Now()
	must(t, w.scanner("intake", "refuse", "orders"))
	if took := time.Since(began); took > time.Minute {
		t.Errorf("refuse took %s", took)
	}
	if d := c.take(refusedQueue); d.MessageId != "stuck" || d.Headers["x-duefleet-refused-class"] != "operator" ||
		d.Headers["x-duefleet-in"] != "10ms" {
		t.Errorf("refused %q with %v", d.MessageId, d.Headers)
	}
	must(t, w.scanner("topic", "resume", "orders"))
	arrived := map[string]bool{}
	for range 2 {
		arrived[c.take("orders.due").MessageId] = true
	}
	if !arrived["b"] || !arrived["c"] {
		t.Errorf("arrived %v, want b and c", arrived)
	}
	check.Until(t, "the intake to be empty", rarely(func() bool {
		q, err := c.ch.QueueDeclarePassive(intakeQueue, true, false, false, false, nil)
		check.OK(t, err)
		return q.Messages == 0 && w.status().Topic("orders").Pending == 0
	}))
}
