package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// TestSetTellsOfTheBindingThatItLeaves: set mentions the old binding if tasks would also
// arrive in the old queue, and only then.
func TestSetTellsOfTheBindingThatItLeaves(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "written", "topic", "set", "orders", "declare.queue=orders.due", "--no-wait")
	const left = "topic orders: queue orders.due stays bound to exchange orders for key orders, so that each task " +
		"arrives in both queues"
	const unbind = "unbind it: scanner topic set orders --unbind-old\n"
	for assignments, told := range map[string]bool{
		"declare.queue=new.due":                             true,
		"declare.queue=new.due declare.type=fanout":         true,
		"declare.queue=new.due routing_key=k":               false,
		"declare.queue=new.due exchange=other":              false,
		"declare.queue_type=classic":                        false,
		"declare=":                                          false,
		"declare.queue=new.due exchange=orders rate=5":      true,
		"declare.queue=orders.due rate=7":                   false,
		"routing_key=k declare.type=fanout declare.queue=q": true,
	} {
		code, text := o.call(append([]string{"topic", "set", "orders", "--dry-run"}, strings.Fields(assignments)...)...)
		if code != cli.Done || strings.Contains(text, left) != told || strings.Contains(text, unbind) != told {
			t.Errorf("%s: code %d, %s", assignments, code, text)
		}
	}
}

// TestTheOldQueueIsUnboundOnceScannersApplied: set unbinds only queues of the topic's
// history, and only after scanners applied the document. Until then doctor reports the old
// queue.
func TestTheOldQueueIsUnboundOnceScannersApplied(t *testing.T) {
	t.Parallel()
	addr, prefix := servertest.Consul(t)
	url := servertest.RabbitMQ(t)
	o := newOperator(t, fmt.Sprintf("consul: {addr: '%s', prefix: '%s'}\nrabbitmq: {urls: ['%s']}\n", addr, prefix, url))
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	bind := func(queue string) {
		t.Helper()
		_, err := ch.QueueDeclare(queue, true, false, false, false, nil)
		if err = errors.Join(err, ch.ExchangeDeclare("orders", "direct", true, false, false, false, nil),
			ch.QueueBind(queue, "orders", "orders", false, nil)); err != nil {
			t.Fatal(err)
		}
	}
	arrived := func(queue string) int {
		t.Helper()
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q.Messages
	}
	o.wants(cli.Done, "written", "topic", "create", "orders", "declare.queue=old.due", "--no-wait")
	o.wants(cli.Done, "nothing to unbind", "topic", "set", "orders", "--unbind-old")
	bind("old.due")
	o.wants(cli.Done, "queue old.due stays bound", "topic", "set", "orders", "declare.queue=new.due", "--no-wait")
	bind("new.due")
	o.wants(cli.Failed, "nothing was unbound, because not all scanners apply the document: no scanner runs", "topic",
		"set", "orders", "--unbind-old")
	o.wants(cli.Usage, "unbind-old", "topic", "set", "orders", "--unbind-old", "--no-wait")
	says := o.member("one")
	says.Store(&balance.Member{Applied: 1 << 60})
	o.heard("one", func(m balance.Member) bool { return m.Applied > 0 })
	if got := o.found("topic orders old queue"); !strings.HasPrefix(got,
		"warn: queue old.due, which an earlier document declared, is still there") ||
		!strings.Contains(got, "topic set orders --unbind-old") {
		t.Errorf("doctor: %s", got)
	}
	o.wants(cli.Done, "queue old.due is unbound from exchange orders for key orders", "topic", "set", "orders",
		"--unbind-old")
	if err := ch.PublishWithContext(t.Context(), "orders", "orders", true, false, amqp.Publishing{}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "a message in the new queue", func() bool { return arrived("new.due") == 1 })
	if n := arrived("old.due"); n != 0 {
		t.Errorf("%d messages in the old queue", n)
	}
	if _, err := ch.QueueDelete("old.due", false, false, false); err != nil {
		t.Fatal(err)
	}
	o.finds("when it is gone", "topic orders old queue", "")
	o.wants(cli.Done, "queue old.due is unbound", "topic", "set", "orders", "rate=9", "--unbind-old")
}
