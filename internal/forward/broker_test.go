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
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// ownBroker starts a broker for a test that harms it.
func ownBroker(t *testing.T, conf string) *servers.RabbitMQ {
	t.Helper()
	servertest.Need(t, "rabbitmq-server")
	broker, err := servers.StartRabbitMQ(t.Context(), servers.RabbitMQConfig{Dir: t.TempDir(), Conf: conf})
	check.OK(t, err)
	t.Cleanup(func() { _ = broker.Kill() })
	return broker
}

// All of these run on one broker, one after the other, because a start takes seconds.
func TestBroker(t *testing.T) {
	t.Parallel()
	broker := ownBroker(t, "max_message_size = 100000")
	t.Run("largest message", func(t *testing.T) { largestMessage(t, broker) })
	t.Run("alarm", func(t *testing.T) { alarm(t, broker) })
	t.Run("alarm outlasts the deadline", func(t *testing.T) { longAlarm(t, broker) })
	t.Run("doesn't answer", func(t *testing.T) { unanswering(t, broker) })
	t.Run("whole window", func(t *testing.T) { wholeWindow(t, broker) })
	t.Run("rests", func(t *testing.T) { rests(t, broker) })
	t.Run("stuck queue", func(t *testing.T) { stuckQueue(t, broker) })
	t.Run("abandoned", func(t *testing.T) { abandoned(t, broker) })
	t.Run("stands still", func(t *testing.T) { standstill(t, broker) })
	t.Run("killed", func(t *testing.T) { killed(t, broker) })
}

func quorumRoute(queue string) forward.Route {
	return forward.Route{Exchange: queue, RoutingKey: "k", Declare: &forward.Declare{Queue: queue, QueueType: "quorum"},
		Window: 500}
}

// A payload above max_message_size ends the channel once. After that only its task is
// refused.
func largestMessage(t *testing.T, broker *servers.RabbitMQ) {
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{broker.URL("/")}}), "topic", quorumRoute("largest"))
	ready(t, p)
	large := messages("topic", "large", 2)
	large[0].Task.Payload, large[1].Task.Payload = make([]byte, 100_001), make([]byte, 100_001)
	publish(t, p, large[0])
	if r := got.all(large[0])[0]; r.Outcome != forward.Unknown || !strings.Contains(r.Reason, "larger than") {
		t.Errorf("%+v, want unknown with the broker's words", r)
	}
	ready(t, p)
	fits := messages("topic", "fits", 1)[0]
	fits.Task.Payload = make([]byte, 100_000)
	publish(t, p, large[1], fits)
	if r := got.all(large[1])[0]; r.Outcome != forward.Refused || !strings.Contains(r.Reason, "the broker takes 100000") {
		t.Errorf("%+v, want refused", r)
	}
	if r := got.all(fits)[0]; r.Outcome != forward.Confirmed {
		t.Errorf("%+v, want confirmed", r)
	}
}

func setAlarm(t *testing.T, broker *servers.RabbitMQ, on bool) {
	t.Helper()
	watermark := "0.4"
	if on {
		watermark = "0.0000001"
	}
	_, err := broker.Ctl(t.Context(), "set_vm_memory_high_watermark", watermark)
	check.OK(t, err)
}

// declareTenant makes a queue of the tenant's name, and binds it to an exchange of
// type headers.
func declareTenant(t *testing.T, ch *amqp.Channel, exchange, tenant string, args amqp.Table) {
	t.Helper()
	declareQueue(t, ch, tenant, exchange, "", args, amqp.Table{"x-match": "all", "tenant": tenant})
}

// of makes n messages for a tenant's queue.
func of(tenant, name string, n int) []*forward.Message {
	all := messages("topic", name, n)
	for _, m := range all {
		m.Task.Headers = map[string]string{"tenant": tenant}
	}
	return all
}

// tell suspends the process of a classic queue, so that it answers nothing, or resumes
// it.
func tell(t *testing.T, broker *servers.RabbitMQ, queue, verb string) {
	t.Helper()
	_, err := broker.Ctl(t.Context(), "eval",
		`{ok, Q} = rabbit_amqqueue:lookup({resource, <<"/">>, queue, <<"`+queue+`">>}), sys:`+verb+`(amqqueue:get_pid(Q), infinity).`)
	check.OK(t, err)
}

// A topic begins with a small channel. Its whole window can be in flight all the same, while
// the broker confirms nothing.
func wholeWindow(t *testing.T, broker *servers.RabbitMQ) {
	const window = 600
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{broker.URL("/")}}), "topic", forward.Route{
		Exchange: "slow", RoutingKey: "k", Declare: &forward.Declare{Queue: "slow"}, Window: window})
	ready(t, p)
	tell(t, broker, "slow", "suspend")
	batch := messages("topic", "slow", window)
	publish(t, p, batch...)
	if n := got.count(); n != 0 {
		t.Errorf("%d results while the queue confirms nothing", n)
	}
	tell(t, broker, "slow", "resume")
	keeps(t, got.all(batch...), forward.Confirmed)
}

// While a topic rests it has no channel and is ready all the same. It gets one when messages
// come, and no message is lost in between.
func rests(t *testing.T, broker *servers.RabbitMQ) {
	const window = 600
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{broker.URL("/")}}), "topic", forward.Route{
		Exchange: "rests", RoutingKey: "k", Declare: &forward.Declare{Queue: "rests"}, Window: window})
	ready(t, p)
	declared := time.Now()
	has := func(what string, right func(places int) bool) {
		t.Helper()
		check.Until(t, what, func() bool { return right(p.Places()) })
	}
	has("the first channel", func(n int) bool { return n == 16 })
	var all []*forward.Message
	for round, on := range []bool{true, false, true, false} {
		batch := messages("topic", fmt.Sprint("rests", round), window)
		all = append(all, batch...)
		p.Rest(on)
		publish(t, p, batch...)
	}
	keeps(t, got.all(all...), forward.Confirmed)
	p.Rest(true)
	has("no channel", func(n int) bool { return n == 0 })
	if ok, why := p.Ready(); !ok {
		t.Errorf("a topic that rests isn't ready: %s", why)
	}
	check.Until(t, "the declaration to be a second old", func() bool { return time.Since(declared) > time.Second })
	p.Rest(false)
	has("another channel", func(n int) bool { return n >= 16 })

	// The new channel is young, but the declaration isn't: the first message that comes back
	// makes the scanner declare again.
	ch := servertest.Channel(t, broker.URL("/"))
	check.OK(t, ch.QueueUnbind("rests", "k", "rests", nil))
	returned := messages("topic", "returned", 1)
	publish(t, p, returned...)
	keeps(t, got.all(returned...), forward.Returned)
	check.Until(t, "the binding", func() bool {
		check.OK(t, ch.Publish("rests", "k", false, false, amqp.Publishing{MessageId: "probe"}))
		for {
			m, ok, err := ch.Get("rests", true)
			check.OK(t, err)
			if !ok || m.MessageId == "probe" {
				return ok
			}
		}
	})
}

// A queue that answers nothing delays only its own messages. Meanwhile more than a window
// of others is confirmed, each once. The delayed ones are given up one by one, and
// confirmed if the queue comes back.
func stuckQueue(t *testing.T, broker *servers.RabbitMQ) {
	ch := servertest.Channel(t, broker.URL("/"))
	declareExchange(t, ch, "by-tenant", amqp.ExchangeHeaders)
	declareTenant(t, ch, "by-tenant", "flows", nil)
	declareTenant(t, ch, "by-tenant", "stuck", nil)
	const window, held, through = 100, 3, 2000
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{broker.URL("/")}}), "topic",
		forward.Route{Exchange: "by-tenant", Window: window})
	ready(t, p)
	tell(t, broker, "stuck", "suspend")
	stuck := of("stuck", "stuck", held)
	publish(t, p, stuck...)
	flowing := of("flows", "flows", through)
	publish(t, p, flowing...)
	if n := outcomes(got.all(flowing...)); n[forward.Confirmed] != through {
		t.Errorf("%v behind a stuck queue, want all confirmed", n)
	}
	for i := 0; ; i++ { // until one is written before its deadline
		late := of("stuck", fmt.Sprint("late", i), 1)[0]
		late.Deadline = time.Now().Add(time.Second)
		publish(t, p, late)
		r := got.all(late)[0]
		if r.Outcome == forward.Unsent {
			continue
		}
		if r.Outcome != forward.Overdue {
			t.Errorf("%+v, want overdue", r)
		}
		break
	}
	for _, m := range stuck {
		if r, ok := got.get(m); ok {
			t.Errorf("%+v, want none yet: one that is overdue ends no others", r)
		}
	}
	more := of("flows", "more", through)
	ready(t, p) // the broker had only the late message to answer, so another channel may replace this one
	publish(t, p, more...)
	if n := outcomes(got.all(more...)); n[forward.Confirmed] != through {
		t.Errorf("%v after one was given up, want all confirmed", n)
	}
	tell(t, broker, "stuck", "resume")
	if n := outcomes(got.all(stuck...)); n[forward.Confirmed] != held {
		t.Errorf("%v from the queue that came back, want all confirmed", n)
	}
	if n := len(stored(t, ch, "flows")); n != 2*through {
		t.Errorf("%d messages in the queue that flows, want %d", n, 2*through)
	}
}

// heartbeat is so long that the connection survives a process that stands still for some
// seconds.
const heartbeat = 6 * time.Second

// A memory alarm of several heartbeats under load: blocked is reported, the
// connection survives, nothing hangs, and the load goes on afterwards.
func alarm(t *testing.T, broker *servers.RabbitMQ) {
	c := connect(t, forward.Config{URLs: []string{broker.URL("/")}, Heartbeat: heartbeat, WriteTimeout: 2 * heartbeat})
	p, got := publisher(t, c, "topic", quorumRoute("alarm"))
	ready(t, p)
	loading, stop := context.WithCancel(t.Context())
	sent := make(chan []*forward.Message, 1)
	go func() { sent <- load(loading, t, p, "topic", "m") }()
	check.Count(t, "messages to flow", 1001, got.count)
	setAlarm(t, broker, true)
	defer setAlarm(t, broker, false)
	check.Until(t, "the alarm", func() bool {
		connected, blocked, reason := c.State()
		return connected && blocked && strings.Contains(reason, "low on memory")
	})
	m := messages("topic", "blocked", 1)[0]
	if err := p.Publish(t.Context(), []*forward.Message{m}); err == nil || got.all(m)[0].Outcome != forward.Unsent {
		t.Errorf("%v and %+v while blocked, want an error and unsent", err, got.all(m)[0])
	}
	for end, over := time.After(4*heartbeat), false; !over; {
		changed := c.Changed()
		if connected, blocked, reason := c.State(); !connected || !blocked {
			t.Fatalf("connected=%v blocked=%v (%s) during the alarm", connected, blocked, reason)
		}
		select {
		case <-changed:
		case <-end:
			over = true
		}
	}
	setAlarm(t, broker, false)
	ready(t, p)
	before := got.count()
	check.Count(t, "messages to flow again", before+1001, got.count)
	stop()
	truthful(t, got.all(<-sent...), stored(t, servertest.Channel(t, broker.URL("/")), "alarm"))
}

// Messages that an alarm keeps in flight are given up at their deadline. A new connection
// finds out that it is blocked before any task is written to it.
func longAlarm(t *testing.T, broker *servers.RabbitMQ) {
	log := &logLines{}
	c := connectAsIs(t, forward.Config{URLs: []string{broker.URL("/")}, Log: textLog(log)})
	route := quorumRoute("long-alarm")
	hurried := route
	hurried.ConfirmTimeout = time.Second
	p, got := publisher(t, c, "topic", hurried)
	ready(t, p)
	loading, stop := context.WithCancel(t.Context())
	sent := make(chan []*forward.Message, 1)
	go func() { sent <- load(loading, t, p, "topic", "m") }()
	check.Count(t, "messages to flow", 1001, got.count)
	setAlarm(t, broker, true)
	defer setAlarm(t, broker, false)
	check.Until(t, "the alarm", func() bool { _, blocked, _ := c.State(); return blocked })
	stop()
	batch := <-sent
	before := outcomes(got.all(batch...))[forward.Unknown]

	late, gotLate := publisher(t, connect(t, forward.Config{URLs: []string{broker.URL("/")}}), "topic", route)
	check.Until(t, "the alarm on a connection that is new", func() bool {
		_, reason := late.Ready()
		return strings.HasPrefix(reason, "RabbitMQ blocks publishers: low on memory")
	})
	setAlarm(t, broker, false)
	ready(t, late)
	ready(t, p)
	m := messages("topic", "after", 1)[0]
	publish(t, late, m)
	if r := gotLate.all(m)[0]; r.Outcome != forward.Confirmed {
		t.Errorf("%+v after the alarm, want confirmed", r)
	}
	t.Logf("%d unknown during the alarm", before)
	truthful(t, got.all(batch...), stored(t, servertest.Channel(t, broker.URL("/")), "long-alarm"))
}

// The broker confirms nothing and doesn't answer, so this program closes the connection.
// The log and the results of its tasks give that as the reason.
func unanswering(t *testing.T, broker *servers.RabbitMQ) {
	log := &logLines{}
	c := connectAsIs(t, forward.Config{URLs: []string{broker.URL("/")}, Log: textLog(log)})
	route := quorumRoute("unanswering")
	route.ConfirmTimeout = time.Second
	p, got := publisher(t, c, "topic", route)
	ready(t, p)
	check.OK(t, broker.Pause())
	m := messages("topic", "m", 1)[0]
	publish(t, p, m)
	check.Until(t, "the connection to be closed", func() bool { return log.count("rabbitmq is unavailable") > 0 })
	check.OK(t, broker.Resume())
	if text := log.String(); strings.Contains(text, "closed network connection") ||
		!strings.Contains(text, "no answer from ") {
		t.Errorf("the log says %s", text)
	}
	if r := got.all(m)[0]; strings.Contains(r.Reason, "closed network connection") {
		t.Errorf("of its message it says %+v", r)
	}
}

// A stopped broker takes bytes and answers nothing. The heartbeat ends the connection,
// and Run doesn't wait for that broker.
func standstill(t *testing.T, broker *servers.RabbitMQ) {
	c := connect(t, forward.Config{URLs: []string{broker.URL("/")}, Heartbeat: heartbeat})
	p, got := publisher(t, c, "topic", quorumRoute("standstill"))
	roomy(t, p, 60)
	check.OK(t, broker.Pause())
	batch := messages("topic", "m", 50)
	publish(t, p, batch...)
	n := outcomes(got.all(batch...))
	check.OK(t, broker.Resume())
	if n[forward.Unknown] != len(batch) {
		t.Errorf("%v, want all unknown", n)
	}
	ready(t, p)
}

func killed(t *testing.T, broker *servers.RabbitMQ) {
	c := connect(t, forward.Config{URLs: []string{broker.URL("/")}})
	// After kill -9 a quorum queue of RabbitMQ 3.10 may confirm nothing for
	// minutes, to any client.
	route := forward.Route{Exchange: "killed", RoutingKey: "k", Declare: &forward.Declare{Queue: "killed"}, Window: 500}
	p, got := publisher(t, c, "topic", route)
	unanswered, gotUnanswered := publisher(t, c, "unanswered", route)
	ready(t, p)
	ready(t, unanswered)
	loading, stop := context.WithCancel(t.Context())
	sent := make(chan []*forward.Message, 1)
	go func() { sent <- load(loading, t, p, "topic", "m") }()
	check.Count(t, "messages to flow", 1001, got.count)
	// Some must be in flight for certain.
	check.OK(t, broker.Pause())
	held := messages("unanswered", "held", 10)
	publish(t, unanswered, held...)
	check.OK(t, broker.Kill())
	check.Until(t, "the loss", func() bool { connected, _, reason := c.State(); return !connected && reason != "" })
	check.OK(t, broker.Restart(t.Context()))
	ready(t, p)
	before := got.count()
	check.Count(t, "messages to flow again", before+1001, got.count)
	stop()
	lost := gotUnanswered.all(held...)
	if n := outcomes(lost); n[forward.Unknown] != len(held) {
		t.Errorf("%v of those that the broker never answered for, want all unknown", n)
	}
	truthful(t, append(got.all(<-sent...), lost...), stored(t, servertest.Channel(t, broker.URL("/")), "killed"))
}
