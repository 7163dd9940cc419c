package forward_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMalformedURLKeepsItsPassword(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"amqp://user:secret@host:port/", "amqp://user:secret#1@host/", "amqp://user:secret%zz@host/",
		"http://user:secret@host/",
		"amqp://user:secret@host/ v", "amqp://user:secret@host/?heartbeat=x", "amqp://user:secret@host/?auth_mechanism=magic",
		"amqps://user:secret@host/?cacertfile=ca.pem", "://user:secret@host", "amqp://user:se/cret@host", "",
	} {
		_, err := forward.New(forward.Config{URLs: []string{"amqp://fine", raw}})
		switch {
		case err == nil:
			t.Errorf("%q was taken", raw)
		case !strings.HasPrefix(err.Error(), "rabbitmq url 2: "):
			t.Errorf("%q: error %q doesn't say which URL", raw, err)
		case strings.Contains(err.Error(), "se") && (strings.Contains(err.Error(), "secret") ||
			strings.Contains(err.Error(), ":se")):
			t.Errorf("the error tells the password: %q", err)
		}
	}
	if _, err := forward.New(forward.Config{}); err == nil {
		t.Error("no URL was taken")
	}
}

func textLog(l *logLines) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// logLines collects a log.
type logLines struct{ check.Log }

func (l *logLines) count(part string) int { return strings.Count(l.String(), part) }

func TestWrongPasswordIsAnOutage(t *testing.T) {
	t.Parallel()
	network, url := newProxy(t, strings.Replace(servertest.RabbitMQ(t), "guest:guest@", "guest:secret@", 1))
	log := &logLines{}
	c := connect(t, forward.Config{URLs: []string{url}, Log: textLog(log)})
	check.Until(t, "the reason", func() bool {
		connected, _, reason := c.State()
		return !connected && strings.Contains(reason, "403 ACCESS_REFUSED - Login was refused")
	})
	tries := network.dials.Load()
	check.Until(t, "more tries, that are not logged", func() bool { return network.dials.Load() >= tries+2 })
	if n := log.count("level="); n != 1 || log.count("secret") != 0 {
		t.Errorf("%d records, want one without the password:\n%s", n, log)
	}
}

func TestAnOutageIsLoggedAgainWhenThereIsAdvice(t *testing.T) {
	t.Parallel()
	network, url := newProxy(t, strings.Replace(servertest.RabbitMQ(t), "guest:guest@", "guest:secret@", 1))
	log := &logLines{}
	var known atomic.Bool
	connect(t, forward.Config{URLs: []string{url}, Log: textLog(log), Advice: func(string) string {
		if known.Load() {
			return "; ask the keeper"
		}
		return ""
	}})
	more := func() {
		tries := network.dials.Load()
		check.Until(t, "more tries", func() bool { return network.dials.Load() >= tries+2 })
	}
	more()
	if n := log.count("level=WARN"); n != 1 {
		t.Errorf("%d records without advice, want one:\n%s", n, log)
	}
	known.Store(true)
	check.Until(t, "the advice", func() bool { return log.count("ask the keeper") == 1 })
	more()
	if n := log.count("level=WARN"); n != 2 {
		t.Errorf("%d records, want one without and one with advice:\n%s", n, log)
	}
}

func TestURLsAreTriedInTurn(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	closed := "amqp://" + listener.Addr().String()
	_ = listener.Close()
	p, _ := publisher(t, connect(t, forward.Config{URLs: []string{closed, closed, servertest.RabbitMQ(t)}}), "topic",
		forward.Route{})
	ready(t, p)
}

func TestLostConnection(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	network, via := newProxy(t, url)
	log := &logLines{}
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{via}, Log: textLog(log)}), "topic", forward.Route{
		Exchange: "e", RoutingKey: "k", Declare: &forward.Declare{Queue: "q"}, Window: 300,
	})
	ready(t, p)
	loading, stop := context.WithCancel(t.Context())
	sent := make(chan []*forward.Message, 1)
	go func() { sent <- load(loading, t, p, "topic", "m") }()
	const cuts = 5
	for i := range cuts {
		before := got.count()
		check.Count(t, "messages to flow", before+501, got.count)
		network.cut()
		check.Until(t, "the loss to be noticed", func() bool { return log.count("rabbitmq is unavailable") == i+1 })
		ready(t, p)
	}
	stop()
	truthful(t, got.all(<-sent...), stored(t, servertest.Channel(t, url), "q"))
	if began, ended := log.count("level=WARN"), log.count("rabbitmq is available again"); began != cuts || ended != cuts {
		t.Errorf("%d outages began and %d ended in the log, want %d each:\n%s", began, ended, cuts, log)
	}
}

// overdue publishes into a network that forwards nothing. One message has a short
// deadline. It returns how long after that deadline all messages had their results.
func overdue(t *testing.T, p *forward.Publisher, got *results) time.Duration {
	t.Helper()
	batch := messages("topic", "m", 99)
	for i, m := range batch {
		m.Deadline = time.Now().Add(time.Duration(200-i) * time.Minute)
	}
	publish(t, p, batch...)
	short := written(t, p, got, "topic", 700*time.Millisecond)
	for _, r := range got.all(append(batch, short)...) {
		if r.Outcome != forward.Unknown || r.Reason != "the broker's confirm is overdue" {
			t.Fatalf("%+v, want unknown because overdue", r)
		}
	}
	return time.Since(short.Deadline)
}

// written publishes messages with a deadline in soon until one is written in time. It
// returns that one after its result.
func written(t *testing.T, p *forward.Publisher, got *results, topic string, soon time.Duration) *forward.Message {
	t.Helper()
	for i := 0; ; i++ {
		m := messages(topic, fmt.Sprint("short-", i), 1)[0]
		m.Deadline = time.Now().Add(soon)
		publish(t, p, m)
		if got.all(m)[0].Outcome != forward.Unsent {
			return m
		}
	}
}

// In a network that forwards nothing and closes nothing only deadlines help.
func TestHalfOpenConnection(t *testing.T) {
	t.Parallel()
	network, via := newProxy(t, servertest.RabbitMQ(t))
	p, got := publisher(t, connectAsIs(t, forward.Suspicious(forward.Config{URLs: []string{via}}, time.Second)), "topic",
		forward.Route{
			Exchange: "e", RoutingKey: "k", Declare: &forward.Declare{Queue: "q"},
		})
	roomy(t, p, 200)
	network.frozen.shut()
	if late := overdue(t, p, got); late < 0 {
		t.Errorf("resolved %v before the deadline", -late)
	}
	expired := messages("topic", "expired", 1)[0]
	expired.Deadline = time.Now()
	_ = p.Publish(t.Context(), []*forward.Message{expired})
	if r := got.all(expired)[0]; r.Outcome != forward.Unsent {
		t.Errorf("%+v with its deadline over, want unsent", r)
	}
	network.frozen.open()
	ready(t, p)
	m := messages("topic", "again", 1)[0]
	publish(t, p, m)
	if r := got.all(m)[0]; r.Outcome != forward.Confirmed {
		t.Errorf("%+v, want confirmed", r)
	}
}

// The broker never answers again on one topic's channel. That topic loses its confirms;
// the other topics keep their connection.
func TestStuckChannel(t *testing.T) {
	t.Parallel()
	network, via := newProxy(t, servertest.RabbitMQ(t))
	log := &logLines{}
	c := connect(t, forward.Config{URLs: []string{via}, Log: textLog(log)})
	fine, gotFine := publisher(t, c, "fine", forward.Route{Exchange: "e1", Declare: &forward.Declare{Queue: "q1"},
		Window: loadWindow})
	ready(t, fine)
	stuck, got := publisher(t, c, "stuck", forward.Route{Exchange: "e2", Declare: &forward.Declare{Queue: "q2"}})
	ready(t, stuck)
	loading, stop := context.WithCancel(t.Context())
	sent := make(chan []*forward.Message, 1)
	go func() { sent <- load(loading, t, fine, "fine", "m") }()

	network.muteNewest()
	opened := network.channels.Load()
	m := written(t, stuck, got, "stuck", time.Second)
	if r := got.all(m)[0]; r.Outcome != forward.Overdue {
		t.Errorf("%+v, want overdue", r)
	}
	ready(t, stuck)
	m = messages("stuck", "again", 1)[0]
	publish(t, stuck, m)
	if r := got.all(m)[0]; r.Outcome != forward.Confirmed {
		t.Errorf("%+v on another channel, want confirmed", r)
	}
	// One replaces the silent channel, and one tests whether the broker answers.
	check.Until(t, "the connection to be put to the test", func() bool { return network.channels.Load() >= opened+2 })
	before := gotFine.count()
	check.Count(t, "messages on the other topic", before+501, gotFine.count)
	stop()
	batch := <-sent
	if n := outcomes(gotFine.all(batch...)); n[forward.Confirmed] != len(batch) {
		t.Errorf("%v on the other topic, want all confirmed", n)
	}
	if log.count("rabbitmq is unavailable") != 0 {
		t.Errorf("the connection was lost:\n%s", log)
	}
}

// A write to a connection that accepts nothing ends at the write timeout.
func TestWriteTimeout(t *testing.T) {
	t.Parallel()
	writeIntoNothing(t)
}

// writeIntoNothing returns how long the publisher took to give all messages up.
func writeIntoNothing(t *testing.T) time.Duration {
	t.Helper()
	network, via := newProxy(t, servertest.RabbitMQ(t))
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{via}, WriteTimeout: 500 * time.Millisecond}), "topic",
		forward.Route{
			Exchange: "e", RoutingKey: "k", Declare: &forward.Declare{Queue: "q"},
		})
	ready(t, p)
	network.frozen.shut()
	batch := messages("topic", "m", 200)
	for _, m := range batch {
		m.Task.Payload = make([]byte, 256<<10)
	}
	began := time.Now()
	_ = p.Publish(t.Context(), batch)
	n := outcomes(got.all(batch...))
	took := time.Since(began)
	if n[forward.Unknown] == 0 || n[forward.Unsent] == 0 || n[forward.Unknown]+n[forward.Unsent] != len(batch) {
		t.Errorf("%v, want unknown what was written and unsent the rest", n)
	}
	return took
}

func TestDrain(t *testing.T) {
	t.Parallel()
	network, via := newProxy(t, servertest.RabbitMQ(t))
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{via}}), "topic", forward.Route{
		Exchange: "e", RoutingKey: "k", Declare: &forward.Declare{Queue: "q"},
	})
	ready(t, p)
	batch := messages("topic", "m", 1000)
	publish(t, p, batch...)
	if err := p.Drain(check.Context(t)); err != nil {
		t.Error(err)
	}
	if n := outcomes(got.all(batch...)); n[forward.Confirmed] != len(batch) || got.count() != len(batch) {
		t.Errorf("%v when drained, want all confirmed", n)
	}

	network.frozen.shut()
	defer network.frozen.open()
	stuck := messages("topic", "stuck", 100)
	publish(t, p, stuck...)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := p.Drain(ctx); err == nil || !strings.Contains(err.Error(), "100 messages unresolved") {
		t.Errorf("error %v, want one that counts the unresolved", err)
	}
	if got.count() != len(batch)+len(stuck) {
		t.Errorf("%d results after Drain, want %d", got.count(), len(batch)+len(stuck))
	}
	if n := outcomes(got.all(stuck...)); n[forward.Unknown] != len(stuck) {
		t.Errorf("%v, want all unknown", n)
	}
}

// The end of the process waits for both Runs.
func TestRunEndsOnAFrozenNetwork(t *testing.T) {
	t.Parallel()
	endFrozen(t, forward.Target)
}

// endFrozen returns how long both Runs took to end.
func endFrozen(t *testing.T, limits func(forward.Config) forward.Config) time.Duration {
	t.Helper()
	url := servertest.RabbitMQ(t)
	network, via := newProxy(t, url)
	c, err := forward.New(limits(forward.Config{URLs: []string{via}}))
	check.OK(t, err)
	got := newResults(t)
	route := forward.Route{Exchange: "e", Declare: &forward.Declare{Queue: "q"}, ConfirmTimeout: unhurried}
	p := c.NewPublisher("topic", route, got.take)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { _ = c.Run(ctx) })
	both.Go(func() { _ = running(p)(ctx) })
	ready(t, p)
	network.frozen.shut()
	batch := messages("topic", "m", 10)
	publish(t, p, batch...)
	ended := make(chan struct{})
	go func() {
		both.Wait()
		close(ended)
	}()
	began := time.Now()
	cancel()
	check.Closed(t, "the end of both", ended)
	took := time.Since(began)
	if n := outcomes(got.all(batch...)); n[forward.Unknown] != len(batch) {
		t.Errorf("%v, want all unknown", n)
	}
	if ok, _ := p.Ready(); ok {
		t.Error("ready after the end")
	}
	return took
}

func TestTLS(t *testing.T) {
	t.Parallel()
	secured, pool := servertest.OverTLS(t, servertest.RabbitMQ(t))

	p, got := publisher(t, connect(t, forward.Config{URLs: []string{secured}, TLS: &tls.Config{RootCAs: pool}}), "topic",
		forward.Route{
			Exchange: "e", RoutingKey: "k", Declare: &forward.Declare{Queue: "q"},
		})
	ready(t, p)
	batch := messages("topic", "m", 3000)
	publish(t, p, batch...)
	if n := outcomes(got.all(batch...)); n[forward.Confirmed] != len(batch) {
		t.Errorf("%v, want all confirmed", n)
	}

	stranger := connect(t, forward.Config{URLs: []string{secured}})
	check.Until(t, "the unknown authority as a reason", func() bool {
		connected, _, reason := stranger.State()
		return !connected && strings.Contains(reason, "certificate")
	})
}
