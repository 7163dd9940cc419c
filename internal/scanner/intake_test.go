package scanner

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/intake"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// taking returns a topic's document with an intake, whose exchange and queue are declared.
func taking(queue string, more ...string) string {
	return declaring("orders", append(more, "shards: 2", "exchange: orders.out",
		fmt.Sprintf("intake: {exchange: in, queue: %s}", queue))...)
}

// publishIn publishes a message to the intake's exchange, due in an hour.
func (l *lone) publishIn(client *amqp.Channel, id string) {
	l.t.Helper()
	check.OK(l.t, client.PublishWithContext(l.t.Context(), "in", "key", true, false, amqp.Publishing{MessageId: id,
		Headers: amqp.Table{"x-duefleet-in": "1h"}}))
}

// consumers returns how many consumers and ready messages a queue has.
func (l *lone) consumers(client *amqp.Channel, queue string) (consumers, messages int) {
	l.t.Helper()
	q, err := client.QueueDeclarePassive(queue, true, false, false, false, nil)
	check.OK(l.t, err)
	return q.Consumers, q.Messages
}

// takenIn returns how many messages of the intake were scheduled.
func (l *lone) takenIn() (n int) {
	l.t.Helper()
	families, err := l.cfg.Registry.Gather()
	check.OK(l.t, err)
	for _, f := range families {
		if f.GetName() == "duefleet_intake_total" {
			for _, m := range f.GetMetric() {
				n += int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

// TestTheIntakeFollowsTheSettings: it begins, changes its queue, pauses and ends without a
// restart. While it is off, the scanner has no connection for it.
func TestTheIntakeFollowsTheSettings(t *testing.T) {
	t.Parallel()
	off := map[string]string{"orders": declaring("orders", "shards: 2", "exchange: orders.out")}
	l := newLone(t, off, nil)
	l.start()
	client := servertest.Channel(t, l.rabbit)
	connected := func() bool { return l.inbound.kept.Load() > 0 }
	if connected() {
		t.Error("connected without an intake")
	}
	one := func(queue string) func() bool { return func() bool { return connected() && hasConsumer(l, queue) } }
	l.write(map[string]string{"orders": taking("first")})
	check.Until(t, "a consumer of the first queue", one("first"))
	l.publishIn(client, "a")
	check.Until(t, "a message to be taken in", func() bool { return l.takenIn() == 1 })

	l.write(map[string]string{"orders": taking("second")})
	check.Until(t, "a consumer of the second queue", one("second"))
	check.Until(t, "none of the first queue", func() bool { n, _ := l.consumers(client, "first"); return n == 0 })
	check.OK(l.t, client.QueueUnbind("first", "#", "in", nil))
	l.publishIn(client, "b")
	check.Until(t, "another message to be taken in", func() bool { return l.takenIn() == 2 })

	l.write(map[string]string{"orders": taking("second", "paused: true")})
	check.Until(t, "no consumer while the topic is paused", func() bool {
		n, _ := l.consumers(client, "second")
		return n == 0
	})
	l.publishIn(client, "c")
	check.Until(t, "the message to wait in the queue", func() bool {
		_, n := l.consumers(client, "second")
		return n == 1
	})
	l.write(map[string]string{"orders": taking("second")})
	check.Until(t, "the message to be taken in", func() bool { return l.takenIn() == 3 })

	l.write(off)
	check.Until(t, "no consumer and no connection", func() bool {
		n, _ := l.consumers(client, "second")
		return n == 0 && !connected()
	})
	if why := l.trouble("orders"); why != "" {
		t.Errorf("trouble %q", why)
	}
}

// TestAPausedTopicsIntakeStaysBound: a publisher deletes the exchange and declares it again while
// the topic is paused. A later message is in the queue, and becomes a task.
func TestAPausedTopicsIntakeStaysBound(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": taking("q")}, nil)
	l.start()
	client := servertest.Channel(t, l.rabbit)
	check.Until(t, "a consumer", func() bool { return hasConsumer(l, "q") })
	l.write(map[string]string{"orders": taking("q", "paused: true")})
	check.Until(t, "no consumer in the pause", func() bool { n, _ := l.consumers(client, "q"); return n == 0 })
	check.OK(t, client.ExchangeDelete("in", false, false))
	check.OK(t, client.ExchangeDeclare("in", amqp.ExchangeTopic, true, false, false, false, nil))
	check.Until(t, "a message in the queue", func() bool {
		l.publishIn(client, "a")
		n, messages := l.consumers(client, "q")
		check.Equal(t, "consumers", n, 0)
		return messages > 0
	})
	l.write(map[string]string{"orders": taking("q")})
	check.Until(t, "the message to be taken in", func() bool { return l.takenIn() > 0 })
	check.Until(t, "an empty queue", func() bool { _, messages := l.consumers(client, "q"); return messages == 0 })
}

// hasConsumer asks on a channel of its own: a queue that isn't there closes it.
func hasConsumer(l *lone, queue string) bool {
	q, err := servertest.Channel(l.t, l.rabbit).QueueDeclarePassive(queue, true, false, false, false, nil)
	return err == nil && q.Consumers == 1
}

// TestAnIntakeThatCannotBeServedSaysWhy: the topic itself is delivered, and the intake runs
// once what is missing is there.
func TestAnIntakeThatCannotBeServedSaysWhy(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": "{shards: 1, exchange: '', intake: {exchange: in, queue: q}}"}, nil)
	l.start()
	check.Until(t, "the scanner to say what is missing", func() bool {
		return strings.Contains(l.trouble("orders"), `takes no messages from its intake: check exchange "in"`)
	})
	if block, _ := l.served("orders").topic.publisher.Blocked(); block.Reason != "" {
		t.Errorf("delivery is blocked: %s", block.Reason)
	}
	client := servertest.Channel(t, l.rabbit)
	check.OK(l.t, client.ExchangeDeclare("in", "topic", true, false, false, false, nil))
	check.OK(l.t, client.ExchangeDeclare("q.refused", "fanout", true, false, false, false, nil))
	for _, queue := range []string{"q", "q.refused"} {
		_, err := client.QueueDeclare(queue, true, false, false, false, nil)
		check.OK(l.t, err)
	}
	check.OK(l.t, client.QueueBind("q", "#", "in", false, nil))
	check.Until(t, "a consumer", func() bool { return hasConsumer(l, "q") })
	l.publishIn(client, "a")
	check.Until(t, "a message to be taken in", func() bool { return l.takenIn() == 1 && l.trouble("orders") == "" })
	if n := len(l.said.Lines("intake stands still")); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// TestTheIntakesHeadersFollowTheSetting: without them a message arrives as it was
// published, with its hop since it is due at once. With them it also has duefleet's headers and the task's ID.
func TestTheIntakesHeadersFollowTheSetting(t *testing.T) {
	t.Parallel()
	with := func(headers bool) map[string]string {
		return map[string]string{"orders": declaring("orders", "shards: 1", "exchange: orders.out", "tick: 20ms",
			fmt.Sprintf("intake: {exchange: in, queue: q, headers: %t}", headers))}
	}
	l := newLone(t, with(false), nil)
	l.start()
	client := servertest.Channel(t, l.rabbit)
	check.Until(t, "a consumer", func() bool { return hasConsumer(l, "q") })
	_, err := client.QueueDeclare("all", true, false, false, false, nil)
	check.OK(l.t, err)
	check.OK(l.t, client.QueueBind("all", "key", "orders.out", false, nil))
	deliveries, err := client.Consume("all", "", true, false, false, false, nil)
	check.OK(l.t, err)
	arrived := func() amqp.Delivery {
		t.Helper()
		check.OK(l.t, client.PublishWithContext(t.Context(), "in", "key", true, false,
			amqp.Publishing{Headers: amqp.Table{"n": int8(1)}}))
		return check.Receive(t, "a message", deliveries)
	}
	if d := arrived(); len(d.Headers) != 3 || d.Headers["n"] != int8(1) || d.Headers[intake.HeaderHops] != int64(1) {
		t.Errorf("without: headers %v", d.Headers)
	}
	l.write(with(true))
	check.Until(t, "duefleet's headers", func() bool { return arrived().Headers[task.HeaderID] != nil })
	if d := arrived(); d.Headers[task.HeaderTopic] != "orders" || d.Headers["n"] != int8(1) || d.MessageId != "" {
		t.Errorf("with: headers %v, ID %q", d.Headers, d.MessageId)
	}
}
