package forward_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// loadWindow bounds the loader's messages in flight, so that a broker on a slow machine
// has time for others.
const loadWindow = 300

// load publishes batches until the test tells it to stop, and returns them all.
func load(ctx context.Context, t *testing.T, p *forward.Publisher, topic, name string) []*forward.Message {
	var all []*forward.Message
	for i := 0; ctx.Err() == nil; i++ {
		batch := messages(topic, fmt.Sprintf("%s-%d", name, i), 1+i%97)
		if p.Publish(t.Context(), batch) != nil {
			pause, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			_ = p.WaitReady(pause)
			<-pause.Done()
			cancel()
		}
		all = append(all, batch...)
	}
	return all
}

func TestExchangeDeletedWhileForwarding(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	ch := servertest.Channel(t, url)
	declareExchange(t, ch, "doomed", amqp.ExchangeDirect)
	declareQueue(t, ch, "doomed", "doomed", "k", nil, nil)
	c := connect(t, forward.Config{URLs: []string{url}})
	doomed, gotDoomed := publisher(t, c, "doomed", forward.Route{Exchange: "doomed", RoutingKey: "k", Window: loadWindow})
	other, gotOther := publisher(t, c, "other", forward.Route{
		Exchange: "other", RoutingKey: "k", Declare: &forward.Declare{Queue: "other"}, Window: loadWindow,
	})
	ready(t, doomed)
	ready(t, other)

	loading, stop := context.WithCancel(t.Context())
	sent := make(chan []*forward.Message, 2)
	go func() { sent <- load(loading, t, doomed, "doomed", "m") }()
	go func() { sent <- load(loading, t, other, "other", "m") }()
	check.Count(t, "messages on a topic", 1001, gotDoomed.count)
	check.Count(t, "messages on the other topic", 1001, gotOther.count)
	check.OK(t, ch.ExchangeDelete("doomed", false, false))
	check.Until(t, "the reason on the topic", func() bool {
		ok, reason := doomed.Ready()
		return !ok && strings.Contains(reason, "no exchange 'doomed'")
	})
	since := gotOther.count()
	check.Count(t, "the other topic to go on", since+1001, gotOther.count)
	declareExchange(t, ch, "doomed", amqp.ExchangeDirect)
	check.OK(t, ch.QueueBind("doomed", "k", "doomed", false, nil))
	ready(t, doomed)
	last := messages("doomed", "last", 1)[0]
	publish(t, doomed, last)
	stop()
	for range 2 {
		batch := <-sent
		if batch[0].Task.Topic == "other" {
			if n := outcomes(gotOther.all(batch...)); n[forward.Confirmed] != len(batch) {
				t.Errorf("the other topic got %v, want all confirmed", n)
			}
			continue
		}
		truthful(t, gotDoomed.all(append(batch, last)...), stored(t, ch, "doomed"))
	}
	if r := gotDoomed.all(last)[0]; r.Outcome != forward.Confirmed {
		t.Errorf("%+v after the exchange came back, want confirmed", r)
	}
}

// truthful compares the outcomes with the broker's queues.
func truthful(t *testing.T, found []forward.Result, ids map[string]int) {
	t.Helper()
	for _, r := range found {
		n := ids[r.Message.Task.ID]
		switch {
		case n > 1:
			t.Errorf("%q is stored %d times", r.Message.Task.ID, n)
		case r.Outcome == forward.Confirmed && n != 1:
			t.Errorf("%q is confirmed and not stored", r.Message.Task.ID)
		case (r.Outcome == forward.Unsent || r.Outcome == forward.Returned || r.Outcome == forward.Refused) && n != 0:
			t.Errorf("%q is %v (%s) and stored", r.Message.Task.ID, r.Outcome, r.Reason)
		}
	}
	t.Logf("outcomes: %v", outcomes(found))
}

// Connections are lost, exchanges deleted and routes changed, all under load. Each
// message gets exactly one result, and a true one.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	network, via := newProxy(t, url)
	c := connect(t, forward.Config{URLs: []string{via}, Log: textLog(&logLines{})})
	route := func(i int) forward.Route {
		return forward.Route{
			Exchange: fmt.Sprintf("e%d", i%3), RoutingKey: fmt.Sprintf("k%d", i%2), Window: 100 + 50*(i%4),
			Declare: &forward.Declare{Queue: "q"}, ConfirmTimeout: unhurried,
		}
	}
	p, got := publisher(t, c, "topic", route(0))
	ready(t, p)
	loading, stop := context.WithCancel(t.Context())
	sent := make(chan []*forward.Message, 3)
	for i := range 3 {
		go func() { sent <- load(loading, t, p, "topic", fmt.Sprint(i)) }()
	}
	ch := servertest.Channel(t, url)
	for i := range 24 {
		before := got.count()
		check.Count(t, "messages to flow", before+101, got.count)
		switch i % 4 {
		case 0:
			network.cut()
		case 1, 3:
			p.SetRoute(route(i))
		case 2:
			check.OK(t, ch.ExchangeDelete(fmt.Sprintf("e%d", i%3), false, false))
		}
	}
	stop()
	var all []*forward.Message
	for range 3 {
		all = append(all, <-sent...)
	}
	found := got.all(all...)
	if err := p.Drain(check.Context(t)); err != nil {
		t.Error(err)
	}
	truthful(t, found, stored(t, ch, "q"))
	if got.count() != len(all) {
		t.Errorf("%d results for %d messages", got.count(), len(all))
	}
}
