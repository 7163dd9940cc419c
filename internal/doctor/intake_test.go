package doctor

import (
	"fmt"
	"maps"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// newIntakeTarget has the topics orders, for which scanners declare everything, and bills,
// with exchanges and queues that are made by hand. Their intakes are o and b.
func newIntakeTarget(t *testing.T) (*target, *amqp.Channel) {
	t.Helper()
	url := servertest.RabbitMQ(t)
	o := newTarget(t, fmt.Sprintf("rabbitmq: {urls: ['%s']}\n", url)+`topics:
  orders: {declare: {queue: due}, intake: {exchange: o, queue: o}}
  bills: {intake: {exchange: b, queue: b}}
`)
	return o, servertest.Channel(t, url)
}

// TestDoctorNamesWhatDiffersInAnIntakesExchange: only another type is a reason to set
// intake.type. Scanners leave an exchange alone that they don't declare.
func TestDoctorNamesWhatDiffersInAnIntakesExchange(t *testing.T) {
	t.Parallel()
	o, ch := newIntakeTarget(t)
	check.OK(o.t, ch.ExchangeDeclare("o", "topic", true, false, false, false, amqp.Table{"alternate-exchange": "lost"}))
	check.OK(o.t, ch.ExchangeDeclare("b", "topic", true, false, false, false, amqp.Table{"alternate-exchange": "lost"}))
	const orders, bills = "topic orders intake exchange", "topic bills intake exchange"
	for name, part := range map[string]string{
		orders: "fail: exchange o is there with another alternate-exchange than scanners declare: ",
		bills:  "ok: exchange b is there, of type topic",
	} {
		o.finds("an alternate exchange", name, part)
	}
	o.findsPart(orders, "-> delete exchange o once nobody publishes to it, so that a scanner makes it again, or set "+
		"intake.exchange to another name; a policy can set its alternate exchange")
	check.OK(o.t, ch.ExchangeDelete("o", false, false))
	check.OK(o.t, ch.ExchangeDeclare("o", "fanout", true, false, false, false, nil))
	o.findsPart(orders, "-> set intake.type to the exchange's own type, or intake.exchange")
}

// TestDoctorNamesWhatDiffersInAnIntakesQueue: a queue that is made by hand needs some of the
// arguments. One that scanners declare needs all of them.
func TestDoctorNamesWhatDiffersInAnIntakesQueue(t *testing.T) {
	t.Parallel()
	o, ch := newIntakeTarget(t)
	const orders, bills = "topic orders intake arguments", "topic bills intake arguments"
	o.finds("no queue", orders, "")
	o.finds("no queue", bills, "")
	made := func(queue string, arguments amqp.Table) {
		t.Helper()
		_, err := ch.QueueDelete(queue, false, false, false)
		check.OK(o.t, err)
		_, err = ch.QueueDeclare(queue, true, false, false, false, arguments)
		check.OK(o.t, err)
	}
	quorum := func(more amqp.Table) amqp.Table {
		all := amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true, "x-delivery-limit": int32(1<<31 - 1),
			"x-dead-letter-exchange": "b.refused"}
		maps.Copy(all, more)
		maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
		return all
	}
	made("o", quorum(amqp.Table{"x-dead-letter-exchange": "o.refused", "x-dead-letter-strategy": "at-least-once",
		"x-overflow": "reject-publish"}))
	o.finds("as scanners declare it", orders, "ok: queue o has the arguments with which scanners declare it")
	made("o", quorum(amqp.Table{"x-max-length": int64(5)}))
	o.finds("others", orders, "fail: queue o differs from what scanners declare, and they can't take messages from it: "+
		"x-dead-letter-exchange is 'b.refused', x-dead-letter-strategy is none, "+
		"x-max-length is the value '5' of type 'long', x-overflow is none -> ")
	made("b", quorum(amqp.Table{"x-max-length": int64(5)}))
	o.finds("by hand", bills, "ok: queue b has the arguments that an intake needs")
	made("b", quorum(amqp.Table{"x-single-active-consumer": nil}))
	o.finds("no single consumer", bills, "fail: queue b lacks what an intake needs: x-single-active-consumer is none: "+
		"messages of one ID may overtake each other -> declare it again, once it is empty: rabbitmqadmin ")
	made("b", quorum(amqp.Table{"x-delivery-limit": int32(20), "x-dead-letter-exchange": nil}))
	o.finds("a delivery limit", bills, "warn: queue b lacks what an intake needs: x-dead-letter-exchange is none: a "+
		"message whose expiration ends there is lost; x-delivery-limit is '20': ")
	made("b", amqp.Table{"x-single-active-consumer": true, "x-dead-letter-exchange": "b.refused"})
	o.finds("a classic queue has no limit", bills, "ok: ")
	o.finds("by hand", "topic bills intake binding", "not_checked: AMQP can't tell whether queue b is bound to exchange b")
	o.finds("declared", "topic orders intake binding", "")
}

// TestDoctorWarnsOfLargeBodies: a scanner keeps a whole body only if the queue was made by hand. A
// body above in_flight_bytes is a reason to act. RabbitMQ's default limit depends on its version.
func TestDoctorWarnsOfLargeBodies(t *testing.T) {
	t.Parallel()
	o, _ := newIntakeTarget(t)
	const size = "rabbitmq.message_size"
	o.Settings.InFlightBytes = 16<<20 - 1
	o.finds("a body above in_flight_bytes", size, "warn: RabbitMQ may take a message of ")
	o.findsPart(size, " bytes, and in_flight_bytes is 16777215: the intakes of topic bills have queues that were made by")
	o.Settings.InFlightBytes = 128 << 20
	o.finds("each body has room", size, "info: RabbitMQ takes messages above max_payload, which is 262144 bytes: the "+
		"intakes of topic bills have queues that were made by hand")
	delete(o.Settings.Topics, "bills")
	o.Settings.InFlightBytes = 1 << 20
	o.finds("with declare", size, "info: RabbitMQ takes messages above max_payload, which is 262144 bytes: scanners "+
		"refuse them, and don't keep bodies")
	delete(o.Settings.Topics, "orders")
	o.finds("without an intake", size, "ok: ")
}

// TestDoctorFindsTheIntakeThatAFileNoLongerHas: without Consul there is no history, but Redis keeps
// the documents that scanners applied last.
func TestDoctorFindsTheIntakeThatAFileNoLongerHas(t *testing.T) {
	t.Parallel()
	o, ch := newIntakeTarget(t)
	_, err := ch.QueueDeclare("left", true, false, false, false, nil)
	check.OK(t, err)
	registry := o.Redis.Store.Registry()
	registry.TakeSources(t.Context(), "file", map[string]string{"orders": "", "gone": ""})
	kept := func(topic, document string) {
		t.Helper()
		check.OK(t, registry.KeepDocument(t.Context(), topic, "file", []byte(document)))
	}
	warns := "warn: queue left of an earlier intake holds 0 messages, and nobody consumes from it"
	kept("orders", "intake: {exchange: o, queue: left}")
	o.finds("another queue in the file", "topic orders old intake", warns)
	o.findsPart("topic orders old intake", "then rabbitmqadmin -V ")
	kept("orders", "intake: {exchange: o, queue: o}")
	o.finds("once scanners have applied the file", "topic orders old intake", warns)
	kept("gone", "intake: {exchange: x, queue: left}")
	o.finds("a topic that isn't in the file", "topic gone old intake", warns)
	_, err = ch.QueueDelete("left", false, false, false)
	check.OK(t, err)
	o.finds("when the queue is gone", "topic gone old intake", "")
	o.finds("when the queue is gone", "topic orders old intake", "")
}

// TestARefusalIsNoLostConnection: RabbitMQ may close the channel before doctor asks for the
// transaction's end. Doctor still hears why, and keeps its connection.
func TestARefusalIsNoLostConnection(t *testing.T) {
	t.Parallel()
	b, err := dial(t.Context(), servertest.RabbitMQ(t), nil)
	check.OK(t, err)
	defer b.conn.Cut()
	for range 2000 {
		err := b.tryPublish(t.Context(), "no exchange", nil)
		if !amqpconn.Refused(err, amqp.NotFound) {
			t.Fatalf("got %v", err)
		}
	}
}
