package forward_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// Routes change all the time while four goroutines publish: nothing is lost,
// nothing goes by a route that was replaced before it was published.
func TestSetRouteUnderLoad(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	routes := make([]forward.Route, 6)
	for i := range routes {
		routes[i] = forward.Route{
			Exchange: fmt.Sprintf("e%d", i/2), RoutingKey: fmt.Sprintf("k%d", i), Window: 50 << i,
			Declare: &forward.Declare{Queue: fmt.Sprintf("q%d", i)}, ConfirmTimeout: unhurried,
		}
	}
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "topic", routes[0])
	ready(t, p)
	loading, stop := context.WithCancel(t.Context())
	var loaders sync.WaitGroup
	sent := make(chan []*forward.Message, 4)
	for i := range 4 {
		loaders.Go(func() { sent <- load(loading, t, p, "topic", fmt.Sprint(i)) })
	}
	markers := make(map[int][]*forward.Message)
	for i := range 60 {
		at := i % len(routes)
		p.SetRoute(routes[at])
		marker := messages("topic", fmt.Sprintf("marker-%d", i), 2)
		publish(t, p, marker...)
		markers[at] = append(markers[at], marker...)
	}
	stop()
	loaders.Wait()

	ch := servertest.Channel(t, url)
	all := make(map[string]int)
	for i := range routes {
		in := stored(t, ch, fmt.Sprintf("q%d", i))
		for id, n := range in {
			all[id] += n
		}
		got.all(markers[i]...)
		for _, m := range markers[i] {
			if in[m.Task.ID] != 1 {
				t.Errorf("%s was published after SetRoute returned and is not in q%d", m.Task.ID, i)
			}
		}
	}
	total := 0
	for range 4 {
		batch := <-sent
		total += len(batch)
		if n := outcomes(got.all(batch...)); n[forward.Confirmed] != len(batch) {
			t.Errorf("%v of %d, want all confirmed", n, len(batch))
		}
		truthful(t, got.all(batch...), all)
	}
	t.Logf("%d messages over 60 routes", total)
}

// A new exchange that isn't there costs readiness, and nothing in flight.
func TestSetRouteToMissingExchange(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "topic", forward.Route{
		Exchange: "old", RoutingKey: "k", Declare: &forward.Declare{Queue: "q"},
	})
	ready(t, p)
	inFlight := messages("topic", "before", 2000)
	publish(t, p, inFlight...)
	p.SetRoute(forward.Route{Exchange: "new", RoutingKey: "k", ConfirmTimeout: unhurried})
	if ok, reason := p.Ready(); ok || !strings.Contains(reason, "404") {
		t.Errorf("ready=%v (%s) with a missing exchange", ok, reason)
	}
	blocked(t, p, forward.NotFound, "no exchange 'new'")
	after := messages("topic", "after", 5)
	_ = p.Publish(t.Context(), after)
	if n := outcomes(got.all(inFlight...)); n[forward.Confirmed] != len(inFlight) {
		t.Errorf("%v of those in flight, want all confirmed", n)
	}
	if n := outcomes(got.all(after...)); n[forward.Unsent] != len(after) {
		t.Errorf("%v of those after, want all unsent", n)
	}
	ch := servertest.Channel(t, url)
	declareExchange(t, ch, "new", amqp.ExchangeFanout)
	declareQueue(t, ch, "q2", "new", "", nil, nil)
	ready(t, p)
	blocked(t, p, "", "")
	m := messages("topic", "then", 1)[0]
	publish(t, p, m)
	if r := got.all(m)[0]; r.Outcome != forward.Confirmed {
		t.Errorf("%+v, want confirmed", r)
	}
	p.SetRoute(forward.Route{Exchange: strings.Repeat("e", 256)})
	if ok, reason := p.Ready(); ok || !strings.Contains(reason, "at most 255 bytes") {
		t.Errorf("ready=%v (%s) with a name that AMQP can't write", ok, reason)
	}
	blocked(t, p, forward.OtherRefusal, "at most 255 bytes")
	p.SetRoute(forward.Route{Exchange: "new", RoutingKey: "k", Declare: &forward.Declare{Type: amqp.ExchangeDirect,
		Queue: "q2"}})
	blocked(t, p, forward.Precondition, "inequivalent arg 'type'")
	p.SetRoute(forward.Route{Exchange: "new", RoutingKey: "k"})
	blocked(t, p, "", "")
	if ok, reason := p.Ready(); !ok {
		t.Errorf("with a good route after bad ones: %s", reason)
	}
}

// blocked waits for a publisher's newest route to be judged, and holds it to the verdict.
func blocked(t *testing.T, p *forward.Publisher, kind, words string) {
	t.Helper()
	var b forward.Block
	check.Until(t, "the route to be judged", func() (judged bool) { b, judged = p.Blocked(); return judged })
	if b.Kind != kind || !strings.Contains(b.Reason, words) {
		t.Errorf("blocked by %q: %s; want %q: %s", b.Kind, b.Reason, kind, words)
	}
}

// TestARouteThatNobodyTriedIsNotJudged: before a publisher runs, and without a broker.
func TestARouteThatNobodyTriedIsNotJudged(t *testing.T) {
	t.Parallel()
	c := connect(t, forward.Config{URLs: []string{"amqp://127.0.0.1:1/"}})
	p, _ := publisher(t, c, "topic", forward.Route{Exchange: "e"})
	p.SetRoute(forward.Route{Exchange: "other"})
	if b, judged := p.Blocked(); judged || b.Kind != "" {
		t.Errorf("without a broker: judged %v, %+v", judged, b)
	}
	idle := c.NewPublisher("topic", forward.Route{Exchange: "e"}, func([]forward.Result) {})
	idle.SetRoute(forward.Route{Exchange: "other"})
	if b, judged := idle.Blocked(); judged || b.Kind != "" {
		t.Errorf("before it runs: judged %v, %+v", judged, b)
	}
}

// TestAQueueThatIsGoneIsMadeAgain: somebody deletes the queue of a route that declares it,
// or its binding. Messages are returned, and soon routed again.
func TestAQueueThatIsGoneIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*amqp.Channel) error{
		"queue":   func(ch *amqp.Channel) error { _, err := ch.QueueDelete("q", false, false, false); return err },
		"binding": func(ch *amqp.Channel) error { return ch.QueueUnbind("q", "k", "e", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := servertest.RabbitMQ(t)
			p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "topic", forward.Route{
				Exchange: "e", RoutingKey: "k", Declare: &forward.Declare{Queue: "q"},
			})
			ready(t, p)
			if err := remove(servertest.Channel(t, url)); err != nil {
				t.Fatal(err)
			}
			returned := 0
			check.Until(t, "a message to be routed", func() bool {
				m := messages("topic", "m", 1)
				_ = p.Publish(t.Context(), m) // unsent while the channel is replaced
				outcome := got.all(m...)[0].Outcome
				if outcome == forward.Returned {
					returned++
				}
				return outcome == forward.Confirmed
			})
			if returned == 0 {
				t.Error("no message was returned: was it gone?")
			}
		})
	}
}

// TestTopicsAtRestCheckTheirRoutesInTurns: a topic that rests waits for its turn, and has its route
// checked then, on a channel that all share. One that has messages waits for nobody.
func TestTopicsAtRestCheckTheirRoutesInTurns(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	c := connect(t, forward.Config{URLs: []string{url}})
	leave := c.Crowd()
	awake, _ := publisher(t, c, "awake", forward.Route{Exchange: "amq.fanout", Window: 1})
	ready(t, awake) // so there is a connection
	resting := func(topic string, r forward.Route) (*forward.Publisher, *results) {
		got := newResults(t)
		r.ConfirmTimeout = unhurried
		p := c.NewPublisher(topic, r, got.take)
		p.Rest(true)
		check.Background(t, "a publisher", running(p))
		return p, got
	}
	idle, _ := resting("idle", forward.Route{Exchange: "isn't there", RoutingKey: "k", Window: 1})
	busy, got := resting("busy", forward.Route{Exchange: "busy", RoutingKey: "k", Window: 1,
		Declare: &forward.Declare{Queue: "busy"}})
	for _, p := range []*forward.Publisher{idle, busy} {
		check.Until(t, "a topic to wait for its turn", func() bool {
			ok, why := p.Ready()
			return !ok && why == "the route isn't checked yet"
		})
	}
	batch := messages("busy", "rests", 1)
	publish(t, busy, batch...)
	if results := got.all(batch...); results[0].Outcome != forward.Confirmed {
		t.Errorf("%+v, want confirmed", results[0])
	}
	if block, judged := idle.Blocked(); judged {
		t.Errorf("a topic that rests didn't wait for its turn: %+v", block)
	}
	var calm []*forward.Publisher
	for n := range 100 {
		name := fmt.Sprint("calm-", n)
		p, _ := resting(name, forward.Route{Exchange: name, RoutingKey: "k", Window: 1,
			Declare: &forward.Declare{Queue: name}})
		calm = append(calm, p)
	}
	leave()
	check.Until(t, "the check of the route", func() bool {
		block, judged := idle.Blocked()
		return judged && block.Kind == forward.NotFound
	})
	for _, p := range calm {
		check.Until(t, "a topic at rest to be ready", func() bool { ok, _ := p.Ready(); return ok })
		check.Equal(t, "places of the topic's own channel", p.Places(), 0)
	}
	check.Until(t, "shared channels to be closed", func() bool { return c.Shared() == 0 })
	ch := servertest.Channel(t, url)
	_, err := ch.QueueDeclarePassive("calm-99", true, false, false, false, nil)
	check.OK(t, err)
	calm[0].Rest(false)
	check.Until(t, "a channel of its own", func() bool { return calm[0].Places() > 0 })
}
