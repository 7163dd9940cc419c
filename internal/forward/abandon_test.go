package forward_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// A channel is abandoned while its oldest message waits for a queue that answers nothing.
// Messages behind it that the broker answered keep their outcome. The waiting one is
// unknown.
func abandoned(t *testing.T, broker *servers.RabbitMQ) {
	ch := servertest.Channel(t, broker.URL("/"))
	declareExchange(t, ch, "abandoned", amqp.ExchangeHeaders)
	declareTenant(t, ch, "abandoned", "passes", nil)
	declareTenant(t, ch, "abandoned", "waits", nil)
	declareTenant(t, ch, "abandoned", "full", amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
	tell(t, broker, "waits", "suspend")
	defer tell(t, broker, "waits", "resume")
	t.Run("lost connection", func(t *testing.T) { abandonedWithItsConnection(t, broker) })
	t.Run("overdue", func(t *testing.T) { abandonedOverdue(t, broker) })
	t.Run("the end of draining", func(t *testing.T) { abandonedWhileDraining(t, broker) })
}

// behind is how many messages the broker confirms behind the one that waits.
const behind = 200

// busy is a publisher whose handler has its first result and blocks until goOn. Meanwhile
// only the library knows what the broker answers.
type busy struct {
	*forward.Publisher
	*results
	wire *wiretap
	goOn func()
}

// wiretap knows which of the broker's answers the library has read. The library reads
// frame by frame. So once a later message has its result, all earlier answers were read.
type wiretap struct {
	network *proxy
	last    *forward.Publisher
	results *results
}

// tap must be called before the network mutes channels that open later.
func tap(t *testing.T, network *proxy, c *forward.Connection) *wiretap {
	t.Helper()
	last, got := publisher(t, c, "last", forward.Route{Exchange: "abandoned"})
	ready(t, last)
	return &wiretap{network, last, got}
}

// awaitAnswers waits until the network has forwarded n answers in all and the library has
// read them.
func (w *wiretap) awaitAnswers(t *testing.T, n int64) {
	t.Helper()
	check.Progress(t, "the broker's answers", func() int { return int(w.network.answers.Load()) },
		func() bool { return w.network.answers.Load() >= n })
	m := of("passes", "last", 1)
	publish(t, w.last, m...)
	keeps(t, w.results.all(m...), forward.Confirmed)
}

func newBusy(t *testing.T, broker *servers.RabbitMQ) *busy {
	t.Helper()
	network, via := newProxy(t, broker.URL("/"))
	c := connect(t, forward.Config{URLs: []string{via}})
	b := &busy{results: newResults(t), wire: tap(t, network, c)}
	entered, leave := make(chan struct{}), make(chan struct{})
	var first, last sync.Once
	b.goOn = func() { last.Do(func() { close(leave) }) }
	b.Publisher = c.NewPublisher("topic",
		forward.Route{Exchange: "abandoned", ConfirmTimeout: unhurried},
		func(batch []forward.Result) {
			first.Do(func() { close(entered) })
			<-leave
			b.take(batch)
		})
	check.Background(t, "a publisher", running(b.Publisher))
	t.Cleanup(b.goOn)
	roomy(t, b.Publisher, behind+10)
	publish(t, b.Publisher, of("passes", "first", 1)...)
	check.Closed(t, "a result to be handled", entered)
	return b
}

func abandonedWithItsConnection(t *testing.T, broker *servers.RabbitMQ) {
	b := newBusy(t, broker)
	waiting, passing := of("waits", "lost", 1), of("passes", "lost", behind)
	answered := b.wire.network.answers.Load()
	publish(t, b.Publisher, append(waiting, passing...)...)
	b.wire.awaitAnswers(t, answered+behind)
	b.wire.network.cut()
	check.Until(t, "the loss to be known", b.Lost)
	b.goOn()
	keeps(t, b.all(waiting...), forward.Unknown)
	keeps(t, b.all(passing...), forward.Confirmed)
}

// The broker is silent when a message is overdue, so the publisher tests the connection.
// Answers come during the test, but none to the test itself, and then the connection
// ends.
func abandonedOverdue(t *testing.T, broker *servers.RabbitMQ) {
	network, via := newProxy(t, broker.URL("/"))
	c := connect(t, forward.Config{URLs: []string{via}})
	wire := tap(t, network, c)
	p, got := publisher(t, c, "topic", forward.Route{Exchange: "abandoned"})
	roomy(t, p, behind+10)
	network.muteLater()
	network.held.shut()
	opened := network.channels.Load()
	waiting := writtenWithin(t, p, got, time.Second)
	passing := of("passes", "overdue", behind)
	publish(t, p, passing...)
	check.Until(t, "the connection to be put to the test", func() bool { return network.channels.Load() > opened })
	network.held.open()
	wire.awaitAnswers(t, behind)
	network.cut()
	keeps(t, got.all(waiting), forward.Unknown)
	if r := got.all(waiting)[0]; r.Reason != "the broker's confirm is overdue" {
		t.Errorf("%+v, want it given up as overdue", r)
	}
	keeps(t, got.all(passing...), forward.Confirmed)
}

// writtenWithin publishes messages with a deadline in soon to the queue that answers
// nothing. It returns the first one that was written before its deadline.
func writtenWithin(t *testing.T, p *forward.Publisher, got *results, soon time.Duration) *forward.Message {
	t.Helper()
	for i := 0; ; i++ {
		m := of("waits", fmt.Sprint("overdue-", i), 1)[0]
		m.Deadline = time.Now().Add(soon)
		publish(t, p, m)
		if r, resolved := got.get(m); !resolved || r.Outcome != forward.Unsent {
			return m
		}
	}
}

// The test runs several times: chance decides whether the channel's loop sees the answers
// or the end first.
func abandonedWhileDraining(t *testing.T, broker *servers.RabbitMQ) {
	for i := range 8 {
		b := newBusy(t, broker)
		name := fmt.Sprint("drained-", i)
		waiting, passing, refused := of("waits", name, 1), of("passes", name, behind), of("full", name, 2)
		answered := b.wire.network.answers.Load()
		publish(t, b.Publisher, append(append(waiting, passing...), refused...)...)
		b.wire.awaitAnswers(t, answered+behind+2)
		over, end := context.WithCancel(t.Context())
		end()
		drained := make(chan error, 1)
		go func() { drained <- b.Drain(over) }()
		check.Until(t, "the channel to be asked to stop", b.AskedToStop)
		b.goOn()
		if err := check.Receive(t, "the end of draining", drained); err == nil {
			t.Error("drained without an error, want the messages counted that were left")
		}
		keeps(t, b.all(waiting...), forward.Unknown)
		keeps(t, b.all(passing...), forward.Confirmed)
		keeps(t, b.all(refused[1]), forward.Refused)
	}
}

// keeps requires that all results have one outcome.
func keeps(t *testing.T, found []forward.Result, want forward.Outcome) {
	t.Helper()
	if n := outcomes(found); n[want] != len(found) {
		t.Errorf("%v, want all %v; the first: %+v", n, want, found[0])
	}
}
