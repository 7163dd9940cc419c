package forward_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// The broker acknowledges a returned message too. Every second one of thousands in flight
// is unroutable, and each must get its own outcome.
func TestReturnedIsNeverConfirmed(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	ch := servertest.Channel(t, url)
	declareExchange(t, ch, "picky", amqp.ExchangeHeaders)
	declareQueue(t, ch, "routed", "picky", "", nil, amqp.Table{"route": "yes", "x-match": "all"})
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "topic",
		forward.Route{Exchange: "picky", RoutingKey: "k", Window: 700})
	ready(t, p)
	batch := messages("topic", "m", 6000)
	for i, m := range batch {
		m.Task.Headers = map[string]string{"route": []string{"yes", "no"}[i%2]}
	}
	publish(t, p, batch...)
	for i, r := range got.all(batch...) {
		want := []forward.Outcome{forward.Confirmed, forward.Returned}[i%2]
		if r.Outcome != want {
			t.Fatalf("message %d: %v (%s), want %v", i, r.Outcome, r.Reason, want)
		}
		if want == forward.Returned && r.Reason != `returned: 312 NO_ROUTE from exchange "picky" with routing key "k"` {
			t.Fatalf("reason %q", r.Reason)
		}
	}
	if ids := stored(t, ch, "routed"); len(ids) != len(batch)/2 {
		t.Errorf("%d messages in the queue, want %d", len(ids), len(batch)/2)
	}
}

// picky returns a publisher to the exchange "picky", which routes messages with the
// header route=yes and returns the rest.
func picky(t *testing.T) (*forward.Publisher, *results, *proxy) {
	t.Helper()
	url := servertest.RabbitMQ(t)
	ch := servertest.Channel(t, url)
	declareExchange(t, ch, "picky", amqp.ExchangeHeaders)
	declareQueue(t, ch, "routed", "picky", "", nil, amqp.Table{"route": "yes", "x-match": "all"})
	network, via := newProxy(t, url)
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{via}}), "topic", forward.Route{Exchange: "picky"})
	ready(t, p)
	return p, got, network
}

// The setting may change while messages are in flight, so two versions in flight may have
// either form. Fields that one form omits must still tell them apart.
func TestReturnOfOneOfTwoVersionsInEitherForm(t *testing.T) {
	t.Parallel()
	for name, newer := range map[string]func(*task.Task){
		"due":         func(v *task.Task) { v.Due = v.Due.Add(time.Millisecond) },
		"scheduled":   func(v *task.Task) { v.Scheduled = v.Scheduled.Add(time.Millisecond) },
		"attempt":     func(v *task.Task) { v.Attempt++ },
		"redelivered": func(v *task.Task) { v.Redelivered = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, got, network := picky(t)
			opened := network.channels.Load()
			for i := range 8 {
				// Every order of forms, and which of the two comes back.
				versions := []*forward.Message{messages("topic", "twice", 1)[0], messages("topic", "twice", 1)[0]}
				versions[1].Task = versions[0].Task
				newer(&versions[1].Task)
				network.held.shut()
				for at, m := range versions {
					lean, routed := i>>at&1 == 1, i>>2&1 == at
					m.Task.Headers = map[string]string{"route": map[bool]string{true: "yes", false: "no"}[routed]}
					p.SetRoute(forward.Route{Exchange: "picky", Lean: lean, ConfirmTimeout: unhurried})
					publish(t, p, m)
				}
				network.held.open()
				for at, r := range got.all(versions...) {
					want := forward.Returned
					if i>>2&1 == at {
						want = forward.Confirmed
					}
					if r.Outcome != want {
						t.Errorf("forms %02b, version %d: %v (%s), want %v", i&3, at, r.Outcome, r.Reason, want)
					}
				}
			}
			if n := network.channels.Load() - opened; n != 0 {
				t.Errorf("%d more channels were opened for another form", n)
			}
		})
	}
}

// A task that is rescheduled in flight is there twice with one message-id.
func TestReturnOfOneOfTwoVersions(t *testing.T) {
	t.Parallel()
	p, got, network := picky(t)
	version := func(route string, age time.Duration) *forward.Message {
		m := messages("topic", "twice", 1)[0]
		m.Task.Due = time.UnixMilli(1796119200000).Add(-age)
		m.Task.Scheduled = time.UnixMilli(1796119100000)
		m.Task.Headers = map[string]string{"route": route}
		return m
	}
	for range 200 {
		batch := []*forward.Message{version("yes", time.Second), version("no", 0), version("no", time.Second),
			version("yes", 0)}
		older, same := batch[:2], batch[2:]
		same[0].Task.ID, same[1].Task.ID = "other", "other"
		publish(t, p, append(older, same...)...)
		if found := got.all(batch...); found[0].Outcome != forward.Confirmed || found[1].Outcome != forward.Returned ||
			found[2].Outcome != forward.Returned || found[3].Outcome != forward.Confirmed {
			t.Fatalf("%+v, want confirmed, returned, returned, confirmed", found)
		}
	}
	// These two look the same. Both are in flight when the first comes back.
	for _, routes := range [][]string{{"no", "yes"}, {"yes", "no"}} {
		twins := map[string]*forward.Message{"no": version("no", 0), "yes": version("yes", 0)}
		network.frozen.shut()
		publish(t, p, twins[routes[0]], twins[routes[1]])
		network.frozen.open()
		routed, returned := got.all(twins["yes"])[0], got.all(twins["no"])[0]
		if routed.Outcome != forward.Confirmed && routed.Outcome != forward.Unknown {
			t.Errorf("%v: %+v of the routed one, want confirmed or unknown", routes, routed)
		}
		// Once the other one was confirmed, the return can only be this one's.
		certain := returned.Outcome == forward.Returned && routed.Outcome == forward.Confirmed && routes[0] == "yes"
		if returned.Outcome != forward.Unknown && !certain {
			t.Errorf("%v: %+v of the returned one, want unknown", routes, returned)
		}
	}
}

// The library drops a return that nobody takes for five seconds. A caller that
// blocks that long must not turn returned messages into confirmed ones.
func TestBlockedHandlerLosesNoReturn(t *testing.T) {
	t.Parallel()
	c := connectAsIs(t, forward.Config{URLs: []string{servertest.RabbitMQ(t)}})
	got := newResults(t)
	block, blocked := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p := c.NewPublisher("topic", forward.Route{
		Exchange: "amq.direct", RoutingKey: "nowhere", Window: 500, ConfirmTimeout: unhurried,
	}, func(batch []forward.Result) {
		if slices.ContainsFunc(batch, func(r forward.Result) bool { return r.Outcome == forward.Returned }) {
			once.Do(func() { close(blocked) })
			<-block
		}
		got.take(batch)
	})
	check.Background(t, "a publisher", running(p))
	batch := untilBlocked(t, p, got, blocked)
	// RabbitMQ answers in order. So once it has answered on another channel, the library has
	// handed over or dropped all returns.
	other := c.NewPublisher("other", forward.Route{Exchange: "amq.direct", Window: 1, ConfirmTimeout: unhurried},
		func([]forward.Result) {})
	check.Background(t, "another publisher", running(other))
	ready(t, other)
	close(block)
	if n := outcomes(got.all(batch...)); n[forward.Confirmed] != 0 || n[forward.Returned] == 0 {
		t.Errorf("%v, want none confirmed", n)
	}
	r := answered(t, p, got)
	if r.Outcome != forward.Returned {
		t.Errorf("%+v, want returned", r)
	}
}

// untilBlocked publishes batches until a message of one was returned, and returns that
// batch. It may take several: if this process stands still, all of a batch is unknown.
func untilBlocked(t *testing.T, p *forward.Publisher, got *results, blocked <-chan struct{}) []*forward.Message {
	t.Helper()
	closed := func() bool {
		select {
		case <-blocked:
			return true
		default:
			return false
		}
	}
	for i := 0; ; i++ {
		ready(t, p)
		batch := messages("topic", fmt.Sprint("m-", i), 500)
		_ = p.Publish(t.Context(), batch)
		check.Progress(t, "a returned message", got.count, func() bool { return closed() || got.count() == (i+1)*len(batch) })
		if closed() {
			return batch
		}
	}
}

// answered publishes messages until the broker answered for one.
func answered(t *testing.T, p *forward.Publisher, got *results) (r forward.Result) {
	t.Helper()
	n := 0
	check.Until(t, "an answer of the broker", func() bool {
		ready(t, p)
		n++
		m := messages("topic", fmt.Sprint("again-", n), 1)
		_ = p.Publish(t.Context(), m)
		r = got.all(m...)[0]
		return r.Outcome != forward.Unknown && r.Outcome != forward.Unsent
	})
	return r
}

func TestFullQueueRefuses(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	ch := servertest.Channel(t, url)
	declareExchange(t, ch, "small", amqp.ExchangeDirect)
	declareQueue(t, ch, "small", "small", "k", amqp.Table{"x-max-length": int32(3), "x-overflow": "reject-publish"}, nil)
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "topic",
		forward.Route{Exchange: "small", RoutingKey: "k"})
	ready(t, p)
	for _, m := range messages("topic", "fits", 3) {
		publish(t, p, m)
		if r := got.all(m)[0]; r.Outcome != forward.Confirmed {
			t.Fatalf("%+v, want confirmed", r)
		}
	}
	batch := messages("topic", "more", 50)
	publish(t, p, batch...)
	for _, r := range got.all(batch...) {
		if r.Outcome != forward.Refused || !strings.Contains(r.Reason, "nack") {
			t.Fatalf("%+v, want refused", r)
		}
	}
	if ok, reason := p.Ready(); !ok {
		t.Errorf("not ready after a nack: %s", reason)
	}
	if q, err := ch.QueueDeclarePassive("small", true, false, false, false, nil); err != nil || q.Messages != 3 {
		t.Errorf("%d in the queue (%v), want 3", q.Messages, err)
	}
}

// TestAChannelThatRefusesEverythingIsReplaced: the queue is full until another
// channel was opened, which goes on.
func TestAChannelThatRefusesEverythingIsReplaced(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	ch := servertest.Channel(t, url)
	declareExchange(t, ch, "small", amqp.ExchangeDirect)
	declareQueue(t, ch, "small", "small", "k", amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"}, nil)
	network, via := newProxy(t, url)
	log := &logLines{}
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{via}, Log: textLog(log)}), "topic",
		forward.Route{Exchange: "small", RoutingKey: "k"})
	ready(t, p)
	first := messages("topic", "fits", 1)
	publish(t, p, first...)
	got.all(first...)
	before, n := network.channels.Load(), 0
	check.Progress(t, "another channel", got.count, func() bool {
		n++
		m := messages("topic", fmt.Sprint("refused-", n), 1)
		publish(t, p, m...)
		if r := got.all(m...)[0]; r.Outcome != forward.Refused {
			t.Fatalf("%+v, want refused", r)
		}
		return network.channels.Load() > before
	})
	_, err := ch.QueuePurge("small", false)
	check.OK(t, err)
	last := messages("topic", "fits-again", 1)
	publish(t, p, last...)
	if r := got.all(last...)[0]; r.Outcome != forward.Confirmed {
		t.Errorf("%+v, want confirmed", r)
	}
	if log.count("level=WARN") != 0 {
		t.Errorf("it is no outage:\n%s", log)
	}
}

// TestAQueueWhoseLimitIsRemovedTakesMessagesAgain: RabbitMQ 3.10 goes on refusing messages for a
// quorum queue on a channel that met its limit. Those for another queue of the topic are confirmed.
func TestAQueueWhoseLimitIsRemovedTakesMessagesAgain(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	ch := servertest.Channel(t, url)
	declareExchange(t, ch, "two", amqp.ExchangeDirect)
	declareQueue(t, ch, "limited", "two", "limited", amqp.Table{"x-queue-type": "quorum"}, nil)
	declareQueue(t, ch, "free", "two", "free", nil, nil)
	remove := servertest.Policy(t, url, "^limited$", `{"max-length":1,"overflow":"reject-publish"}`)
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "topic", forward.Route{Exchange: "two"})
	ready(t, p)
	n := 0
	send := func(key string) forward.Outcome {
		n++
		m := messages("topic", fmt.Sprint(key, n), 1)
		m[0].Task.Options.RoutingKey = key
		publish(t, p, m...)
		return got.all(m...)[0].Outcome
	}
	check.Until(t, "the queue to be full", func() bool { return send("limited") == forward.Refused })
	remove()
	check.Until(t, "the queue to take messages", func() bool {
		check.Equal(t, "the outcome for the other queue", send("free"), forward.Confirmed)
		return send("limited") == forward.Confirmed
	})
}
