package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
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
		"declare.queue=new.due":                              true,
		"declare.queue=new.due declare.type=fanout":          true,
		"declare.queue=new.due routing_key=k":                false,
		"declare.queue=new.due exchange=other":               false,
		"declare.queue_type=classic":                         false,
		"declare=":                                           false,
		"declare.queue=new.due exchange=orders rate=5":       true,
		"declare.queue=orders.due rate=7":                    false,
		"routing_key=k declare.type=fanout declare.queue=q":  true,
		"routing_key=k declare.queue=q declare.type=headers": true,
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
	o, url := newBrokerOperator(t)
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
	check.Until(t, "a message in the new queue", func() bool { return arrived("new.due") == 1 })
	if n := arrived("old.due"); n != 0 {
		t.Errorf("%d messages in the old queue", n)
	}
	if _, err := ch.QueueDelete("old.due", false, false, false); err != nil {
		t.Fatal(err)
	}
	o.finds("when it is gone", "topic orders old queue", "")
	o.wants(cli.Done, "queue old.due is unbound", "topic", "set", "orders", "rate=9", "--unbind-old")
}

// TestSetTellsOfTheIntakeThatItLeaves: set, apply and undo mention an intake that no scanner
// serves after the change, and only then. A topic that takes over the queue leaves none.
func TestSetTellsOfTheIntakeThatItLeaves(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	o.wants(cli.Done, "written", "topic", "create", "orders", "intake.exchange=x", "intake.queue=q", "--no-wait")
	const gone = "topic orders: queue q stays bound to exchange x: RabbitMQ confirms what is still published there, and " +
		"no scanner takes it; let its publishers use another exchange first"
	const both = "topic orders: queue q stays bound to exchange x, so that each message published there also arrives " +
		"in this queue, and no scanner takes it; once scanners have applied this, unbind it: " +
		"scanner topic set orders --unbind-old\n"
	for assignments, told := range map[string]string{
		"intake=":                          gone,
		"intake.exchange=":                 gone,
		"intake.exchange=y intake.queue=p": gone,
		"intake.queue=p":                   both,
		"intake.exchange=y":                "",
		"rate=5":                           "",
	} {
		code, text := o.call(append([]string{"topic", "set", "orders", "--dry-run"}, strings.Fields(assignments)...)...)
		if code != cli.Done || strings.Contains(text, "stays bound") != (told != "") || !strings.Contains(text, told) {
			t.Errorf("%s: code %d, %s", assignments, code, text)
		}
	}
	path := writeFile(t, "topics.yaml", "orders: {rate: 5}")
	o.wants(cli.Done, gone, "topic", "apply", "-f", path, "--dry-run")
	o.wants(cli.Done, gone, "topic", "apply", "-f", path, "--yes", "--no-wait")
	o.wants(cli.Done, "written", "topic", "undo", "orders", "--no-wait")
	o.wants(cli.Done, gone, "topic", "undo", "orders", "--no-wait")
	o.wants(cli.Done, "written", "topic", "undo", "orders", "--no-wait")
	path = writeFile(t, "topics.yaml", "{orders: {}, bills: {intake: {exchange: x, queue: q}}}")
	code, text := o.call("topic", "apply", "-f", path, "--dry-run")
	if code != cli.Done || strings.Contains(text, "stays bound") {
		t.Errorf("code %d, %s", code, text)
	}
}

// inletsOf makes an exchange of a type with a queue that gets all its messages.
func inletsOf(t *testing.T, ch *amqp.Channel, exchange, kind, queue string) {
	t.Helper()
	in := forward.Inlet{Exchange: exchange, Type: kind, Queue: queue, Refused: queue + ".refused",
		Canary: exchange + ".canary", Declare: true}
	if err := in.Prepare(ch); err != nil {
		t.Fatal(err)
	}
}

// publisher publishes with confirms, and learns what RabbitMQ returns.
type publisher struct {
	t       *testing.T
	ch      *amqp.Channel
	returns chan amqp.Return
}

func newPublisher(t *testing.T, url string) publisher {
	t.Helper()
	ch := servertest.Channel(t, url)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return publisher{t, ch, ch.NotifyReturn(make(chan amqp.Return, 10))}
}

// unrouted publishes to an exchange and reports whether RabbitMQ returned the message, which
// it does before the confirm.
func (p publisher) unrouted(exchange string) bool {
	p.t.Helper()
	sent, err := p.ch.PublishWithDeferredConfirmWithContext(p.t.Context(), exchange, "key", true, false, amqp.Publishing{})
	if err == nil {
		_, err = sent.WaitContext(p.t.Context())
	}
	if err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.returns:
		return true
	default:
		return false
	}
}

// TestAnAbandonedIntakeIsUnbound: doctor finds it, and set --unbind-old unbinds it whatever
// the exchange's type, once nobody consumes from it. Its messages stay.
func TestAnAbandonedIntakeIsUnbound(t *testing.T) {
	t.Parallel()
	o, url := newBrokerOperator(t)
	ch := servertest.Channel(t, url)
	says := o.member("one")
	says.Store(&balance.Member{Applied: 1 << 60, Format: config.Format()})
	o.heard("one", func(m balance.Member) bool { return m.Format == config.Format() })
	for _, kind := range []string{"topic", "fanout", "headers"} {
		x, q := kind+".in", kind+".q"
		inletsOf(t, ch, x, kind, q)
		o.wants(cli.Done, "written", "topic", "set", "orders", "intake.exchange="+x, "intake.type="+kind, "intake.queue="+q,
			"--no-wait")
	}
	o.wants(cli.Done, "written", "topic", "set", "orders", "intake=", "--no-wait")
	p := newPublisher(t, url)
	if p.unrouted("topic.in") {
		t.Fatal("the intake isn't bound")
	}
	_, err := ch.Consume("fanout.q", "somebody", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := o.found("topic orders old intake")
	if !strings.Contains(got, "warn: queue topic.q of an earlier intake holds 1 message, and nobody consumes from it") ||
		!strings.Contains(got, "topic set orders --unbind-old") || !strings.Contains(got, "queue headers.q") ||
		strings.Contains(got, "fanout.q") {
		t.Errorf("doctor: %s", got)
	}
	if err := ch.Cancel("somebody", false); err != nil {
		t.Fatal(err)
	}
	o.wants(cli.Done, "topic orders: queue topic.q is unbound from exchange topic.in; messages that lie in it: 1",
		"topic", "set", "orders", "--unbind-old")
	for _, kind := range []string{"topic", "fanout", "headers"} {
		if !p.unrouted(kind + ".in") {
			t.Errorf("exchange %s.in is still bound", kind)
		}
		if _, err := ch.QueueDelete(kind+".q", false, false, false); err != nil {
			t.Fatal(err)
		}
	}
	o.finds("when the queues are gone", "topic orders old intake", "")
}

// TestRemovalTellsOfTheIntake: before it asks, with the command that unbinds the queue. With
// --unbind-intake rm unbinds it, and keeps its messages.
func TestRemovalTellsOfTheIntake(t *testing.T) {
	t.Parallel()
	o, url := newBrokerOperator(t)
	uri, err := amqp.ParseURI(url)
	if err != nil {
		t.Fatal(err)
	}
	told := "topic orders: afterwards queue q stays bound to exchange x: RabbitMQ confirms what is still published " +
		"there, and no scanner takes it; let its publishers stop first, then unbind it: --unbind-intake, or " +
		"rabbitmqadmin -V " + uri.Vhost + " delete binding source=x destination_type=queue destination=q " +
		"properties_key='#'\n"
	ch := servertest.Channel(t, url)
	inletsOf(t, ch, "x", "topic", "q")
	p := newPublisher(t, url)
	create := []string{"topic", "create", "orders", "intake.exchange=x", "intake.queue=q", "--no-wait"}
	o.wants(cli.Done, "written", create...)
	o.wants(cli.Usage, told, "topic", "rm", "orders")
	o.wants(cli.Done, told, "topic", "rm", "orders", "--yes")
	if p.unrouted("x") {
		t.Error("rm unbound the queue without --unbind-intake")
	}
	o.wants(cli.Done, "written", create...)
	o.wants(cli.Done, "topic orders: queue q is unbound from exchange x; messages that lie in it: 1", "topic", "rm",
		"orders", "--yes", "--unbind-intake")
	if !p.unrouted("x") {
		t.Error("the queue is still bound")
	}
	o.wants(cli.NotFound, "", "topic", "rm", "orders", "--yes", "--unbind-intake")
}

// TestDoctorSaysThatOldIntakesAreNotChecked: without Consul there is no history. A history
// that can't be read is named.
func TestDoctorSaysThatOldIntakesAreNotChecked(t *testing.T) {
	t.Parallel()
	o := newOperator(t, fmt.Sprintf("rabbitmq: {urls: ['%s']}\ntopics: {orders: {intake: {exchange: x}}}\n",
		servertest.RabbitMQ(t)))
	o.finds("without consul", "old intakes", "not_checked: without consul only the last documents are known")
	addr, prefix := servertest.Consul(t)
	o = newOperator(t, fmt.Sprintf("consul: {addr: '%s', prefix: '%s'}\nrabbitmq: {urls: ['%s']}\n", addr, prefix,
		servertest.RabbitMQ(t)))
	o.puts(map[string]string{"orders": "{intake: {exchange: x}}"})
	client, _ := o.consul()
	pair := &api.KVPair{Key: prefix + "/history/orders", Value: []byte("no history")}
	if _, err := client.KV().Put(pair, nil); err != nil {
		t.Fatal(err)
	}
	o.finds("with a broken history", "old queues and intakes", "not_checked: the history of documents: history of topic "+
		"orders can't be read")
}

// TestDoctorFindsTheIntakeOfARemovedTopic: its history is still there, and the advice is a
// command that needs no topic.
func TestDoctorFindsTheIntakeOfARemovedTopic(t *testing.T) {
	t.Parallel()
	o, url := newBrokerOperator(t)
	uri, err := amqp.ParseURI(url)
	check.OK(t, err)
	ch := servertest.Channel(t, url)
	inletsOf(t, ch, "x", "topic", "q")
	o.wants(cli.Done, "written", "topic", "create", "orders", "intake.exchange=x", "intake.queue=q", "--no-wait")
	o.finds("while the topic is there", "topic orders old intake", "")
	o.wants(cli.Done, "", "topic", "rm", "orders", "--yes")
	o.finds("after the removal", "topic orders old intake", "warn: queue q of an earlier intake holds 0 messages, and "+
		"nobody consumes from it; AMQP can't tell whether it is still bound to exchange x: if it is, RabbitMQ confirms "+
		"what is published there, and no scanner takes it -> let publishers to x use another exchange; then "+
		"rabbitmqadmin -V "+
		uri.Vhost+" delete binding source=x destination_type=queue destination=q properties_key='#'; then delete q "+
		"when it is empty")
	o.wants(cli.Done, "written", "topic", "create", "bills", "intake.exchange=x", "intake.queue=q", "--no-wait")
	o.finds("when another topic has the queue", "topic orders old intake", "")
	o.wants(cli.Done, "", "topic", "rm", "bills", "--yes")
	if _, err := ch.QueueDelete("q", false, false, false); err != nil {
		t.Fatal(err)
	}
	o.finds("when the queue is gone", "topic orders old intake", "")
}
