package forward_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMessageArrivesAsPromised(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 12, 1, 10, 0, 0, 123e6, time.UTC)
	binary := make([]byte, 300<<10) // more than two AMQP frames
	for i := range binary {
		binary[i] = byte(i * 7)
	}
	full := task.Task{
		Topic: "orders", ID: "🚚 o-1", Due: due, FirstDue: due.Add(-time.Minute), Scheduled: due.Add(-time.Hour), Attempt: 3,
		Redelivered: true,
		ContentType: "application/json", Payload: binary,
		Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"tracestate": "k=v", "größe": "übergröße"},
	}
	plain := task.Task{Topic: "orders", ID: "plain", Due: due, FirstDue: due, Scheduled: due, Attempt: 1}
	asked := task.Task{Topic: "orders", ID: "asked", Due: due, Scheduled: due, Attempt: 1, Options: task.Options{
		RoutingKey: "order.express", Priority: 255, Expiration: 49*24*time.Hour + 1999*time.Microsecond, CorrelationID: "c-1",
		ReplyTo: "answers",
	}}
	for name, route := range map[string]forward.Route{
		"classic":      {Declare: &forward.Declare{QueueType: "classic"}},
		"quorum":       {Declare: &forward.Declare{QueueType: "quorum"}},
		"classic/lean": {Declare: &forward.Declare{QueueType: "classic"}, Lean: true},
		"quorum/lean":  {Declare: &forward.Declare{QueueType: "quorum"}, Lean: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := servertest.RabbitMQ(t)
			route.Exchange, route.RoutingKey = "orders", "order.due"
			route.Declare.Type, route.Declare.Queue = "direct", "orders.due"
			p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "orders", route)
			ready(t, p)
			ch := servertest.Channel(t, url)
			check.OK(t, ch.QueueBind("orders.due", "order.express", "orders", false, nil))
			publishAll(t, p, got, full, plain)
			checkMessage(t, ch, route.Lean, full, "application/json")
			checkMessage(t, ch, route.Lean, plain, "application/octet-stream")
			// It comes last, because quorum queues of RabbitMQ 4 deliver a priority above 4 first.
			publishAll(t, p, got, asked)
			checkMessage(t, ch, route.Lean, asked, "application/octet-stream")
		})
	}
}

// owner is a message's owner that frees nothing.
type owner int

func (owner) Resolved(forward.Result) int { return 0 }

// publishAll publishes tasks and checks that each is confirmed.
func publishAll(t *testing.T, p *forward.Publisher, got *results, tasks ...task.Task) {
	t.Helper()
	batch := make([]*forward.Message, len(tasks))
	for i, task := range tasks {
		batch[i] = &forward.Message{Task: task, Owner: owner(7 + i)}
	}
	publish(t, p, batch...)
	for i, r := range got.all(batch...) {
		if r.Outcome != forward.Confirmed || r.Reason != "" || r.Elapsed <= 0 || r.Message.Owner != owner(7+i) {
			t.Errorf("%+v, want it confirmed after some time", r)
		}
	}
}

func checkMessage(t *testing.T, ch *amqp.Channel, lean bool, want task.Task, contentType string) {
	t.Helper()
	m, ok, err := ch.Get("orders.due", true)
	if err != nil || !ok {
		t.Fatalf("no message in orders.due: %v", err)
	}
	headers, app := amqp.Table{
		"x-duefleet-topic": want.Topic, "x-duefleet-due": want.Due.UnixMilli(),
		"x-duefleet-scheduled": want.Scheduled.UnixMilli(),
		"x-duefleet-attempt":   int32(want.Attempt), "x-duefleet-redelivered": want.Redelivered,
	}, "duefleet"
	if lean {
		app = ""
		delete(headers, "x-duefleet-topic")
		if want.Attempt == 1 {
			delete(headers, "x-duefleet-attempt")
		}
		if !want.Redelivered {
			delete(headers, "x-duefleet-redelivered")
		}
	}
	for k, v := range want.Headers {
		headers[k] = v
	}
	if !want.FirstDue.IsZero() && !want.FirstDue.Equal(want.Due) {
		headers["x-duefleet-first-due"] = want.FirstDue.UnixMilli()
	}
	if want.Options.RoutingKey != "" {
		headers["x-duefleet-routing-key"] = want.Options.RoutingKey
	}
	delete(m.Headers, "x-delivery-count") // a quorum queue's own
	if !maps.Equal(m.Headers, headers) {
		t.Errorf("headers\n%#v, want\n%#v", m.Headers, headers)
	}
	if !bytes.Equal(m.Body, want.Payload) {
		t.Errorf("body of %d bytes differs from the payload of %d", len(m.Body), len(want.Payload))
	}
	key, expiration := "order.due", ""
	if want.Options.RoutingKey != "" {
		key, expiration = want.Options.RoutingKey, "4233600001" // cut to the millisecond
	}
	got := []any{m.ContentType, m.DeliveryMode, m.MessageId, m.Type, m.Timestamp.UTC(), m.AppId, m.Exchange, m.RoutingKey}
	wanted := []any{contentType, amqp.Persistent, want.ID, want.Topic, want.Due.UTC().Truncate(time.Second), app, "orders",
		key}
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		t.Errorf("properties\n%v, want\n%v", got, wanted)
	}
	rest := fmt.Sprintf("%q", []any{m.ContentEncoding, m.Priority, m.CorrelationId, m.ReplyTo, m.Expiration, m.UserId})
	if wanted := fmt.Sprintf("%q", []any{"", want.Options.Priority, want.Options.CorrelationID, want.Options.ReplyTo,
		expiration, ""}); rest != wanted {
		t.Errorf("what the task asked for, and no more: %s, want %s", rest, wanted)
	}
}

func TestMissingExchange(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "topic",
		forward.Route{Exchange: "late", RoutingKey: "k"})
	check.Until(t, "the missing exchange as a reason", func() bool {
		ok, reason := p.Ready()
		return !ok && strings.Contains(reason, "404 NOT_FOUND - no exchange 'late'")
	})
	early := messages("topic", "early", 3)
	if err := p.Publish(t.Context(), early); err == nil || !strings.Contains(err.Error(), "no exchange 'late'") {
		t.Errorf("error %v, want one that names the exchange", err)
	}
	if n := outcomes(got.all(early...)); n[forward.Unsent] != 3 {
		t.Errorf("%v, want all unsent", n)
	}
	ch := servertest.Channel(t, url)
	declareExchange(t, ch, "late", amqp.ExchangeDirect)
	declareQueue(t, ch, "q", "late", "k", nil, nil)
	ready(t, p)
	m := messages("topic", "then", 1)[0]
	publish(t, p, m)
	if r := got.all(m)[0]; r.Outcome != forward.Confirmed {
		t.Errorf("%+v, want confirmed", r)
	}
}

// Only this topic fails if the exchange exists with other properties (406) or if the
// broker closes the connection because of its type (503).
func TestDeclarationThatConflicts(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	declareExchange(t, servertest.Channel(t, url), "taken", amqp.ExchangeFanout)
	log := &logLines{}
	c := connect(t, forward.Config{URLs: []string{url}, Log: textLog(log)})
	bad, _ := publisher(t, c, "bad", forward.Route{Exchange: "taken", Declare: &forward.Declare{}})
	odd, _ := publisher(t, c, "odd", forward.Route{Exchange: "odd", Declare: &forward.Declare{Type: "x-of-no-plugin"}})
	good, _ := publisher(t, c, "good", forward.Route{Exchange: "amq.direct"})
	ready(t, good)
	check.Until(t, "the type as a reason", func() bool {
		ok, reason := odd.Ready()
		return !ok && strings.Contains(reason, "unknown exchange type")
	})
	check.Until(t, "the conflict as a reason", func() bool {
		ok, reason := bad.Ready()
		return !ok && strings.Contains(reason, `declare exchange "taken": 406 PRECONDITION_FAILED`)
	})
	if ok, reason := good.Ready(); !ok {
		t.Errorf("the other topic is not ready: %s", reason)
	}
	if log.count("rabbitmq is unavailable") != 0 {
		t.Errorf("the connection was lost:\n%s", log)
	}
}

// The window bounds the unconfirmed messages, however many Publish gets at once.
func TestWindow(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	network, via := newProxy(t, url)
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{via}}), "topic", forward.Route{
		Exchange: "e", RoutingKey: "k", Declare: &forward.Declare{Queue: "q"}, Window: 10,
	})
	ready(t, p)
	batch := messages("topic", "m", 100)
	network.frozen.shut()
	done := make(chan error, 1)
	go func() { done <- p.Publish(t.Context(), batch) }()
	full := func() bool { return p.InFlight() == 10 }
	check.Until(t, "a full window", full)
	select {
	case err := <-done:
		t.Fatalf("100 messages published into a window of 10: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if n := p.InFlight(); n != 10 {
		t.Errorf("%d in flight in a window of 10", n)
	}
	network.frozen.open()
	check.OK(t, check.Receive(t, "the end of Publish", done))
	if n := outcomes(got.all(batch...)); n[forward.Confirmed] != 100 {
		t.Errorf("%v, want all confirmed", n)
	}

	network.frozen.shut()
	batch = messages("topic", "given-up", 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { done <- p.Publish(ctx, batch) }()
	check.Until(t, "a full window", full)
	cancel()
	if err := check.Receive(t, "the end of Publish", done); err == nil {
		t.Error("no error from a Publish whose context ended in a full window")
	}
	network.frozen.open()
	if n := outcomes(got.all(batch...)); n[forward.Confirmed] != 10 || n[forward.Unsent] != 90 {
		t.Errorf("%v, want 10 confirmed and 90 unsent", n)
	}
}

func TestPublishWithoutRun(t *testing.T) {
	t.Parallel()
	c, err := forward.New(forward.Config{URLs: []string{"amqp://127.0.0.1:1"}})
	check.OK(t, err)
	got := newResults(t)
	p := c.NewPublisher("topic", forward.Route{}, got.take)
	p.SetRoute(forward.Route{Exchange: "other"})
	batch := messages("topic", "m", 2)
	if err := p.Publish(t.Context(), batch); err == nil {
		t.Error("no error")
	}
	if n := outcomes(got.all(batch...)); n[forward.Unsent] != 2 {
		t.Errorf("%v, want all unsent", n)
	}
	if err := p.Drain(check.Context(t)); err != nil {
		t.Error(err)
	}
}

// TestALookThatIsAskedForMeanwhileIsNotLost: each route comes into force, also one that is set
// while the last one does.
func TestALookThatIsAskedForMeanwhileIsNotLost(t *testing.T) {
	t.Parallel()
	p, _ := publisher(t, connect(t, forward.Config{URLs: []string{servertest.RabbitMQ(t)}}), "topic", forward.Route{})
	ready(t, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 2000 {
			p.SetRoute(forward.Route{RoutingKey: fmt.Sprint(i)})
		}
	}()
	check.Closed(t, "all routes in force", done)
}
