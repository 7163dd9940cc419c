package main

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/servers/servertest"
)

// newIntakeOperator has the topics orders, for which scanners declare everything, and bills,
// with exchanges and queues that are made by hand. Their intakes are o and b.
func newIntakeOperator(t *testing.T) (*operator, *amqp.Channel) {
	t.Helper()
	url := servertest.RabbitMQ(t)
	o := newOperator(t, fmt.Sprintf("rabbitmq: {urls: ['%s']}\n", url)+`topics:
  orders: {declare: {queue: due}, intake: {exchange: o, queue: o}}
  bills: {intake: {exchange: b, queue: b}}
`)
	return o, servertest.Channel(t, url)
}

// TestDoctorNamesWhatDiffersInAnIntakesExchange: only another type is a reason to set
// intake.type. Scanners leave an exchange alone that they don't declare.
func TestDoctorNamesWhatDiffersInAnIntakesExchange(t *testing.T) {
	t.Parallel()
	o, ch := newIntakeOperator(t)
	o.ok(ch.ExchangeDeclare("o", "topic", true, false, false, false, amqp.Table{"alternate-exchange": "lost"}))
	o.ok(ch.ExchangeDeclare("b", "topic", true, false, false, false, amqp.Table{"alternate-exchange": "lost"}))
	const orders, bills = "topic orders intake exchange", "topic bills intake exchange"
	for name, part := range map[string]string{
		orders: "fail: exchange o is there with another alternate-exchange than scanners declare: ",
		bills:  "ok: exchange b is there, of type topic",
	} {
		o.finds("an alternate exchange", name, part)
	}
	o.findsPart(orders, "-> delete exchange o once nobody publishes to it, so that a scanner makes it again, or set "+
		"intake.exchange to another name; a policy can set its alternate exchange")
	o.ok(ch.ExchangeDelete("o", false, false))
	o.ok(ch.ExchangeDeclare("o", "fanout", true, false, false, false, nil))
	o.findsPart(orders, "-> set intake.type to the exchange's own type, or intake.exchange")
}

// findsPart checks that a finding has a part.
func (o *operator) findsPart(name, part string) {
	o.t.Helper()
	if got := o.found(name); !strings.Contains(got, part) {
		o.t.Errorf("%s: %s\nwant %s in it", name, got, part)
	}
}

func (o *operator) ok(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}
