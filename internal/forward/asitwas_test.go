package forward_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// every is a message with each property and each type of header.
func every() amqpmsg.Message {
	return amqpmsg.Message{
		RoutingKey: "order.eu.due",
		Properties: amqpmsg.Properties{
			ContentType: "application/x", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 7, CorrelationID: "c-1",
			ReplyTo: "answers", Expiration: "600000", MessageID: "m-1", Timestamp: time.Unix(1796119200, 0).UTC(),
			Type: "order", UserID: "guest", AppID: "shop",
		},
		Headers: map[string]any{
			"t": true, "b": int8(-1), "B": uint8(200), "s": int16(-300), "u": uint16(65000), "I": int32(-70000),
			"i": uint32(math.MaxUint32), "l": int64(math.MinInt64), "f": float32(1.5), "d": -0.25,
			"D": amqpmsg.Decimal{Scale: 2, Value: -12345}, "S": "grün", "x": []byte{0, 1, 255}, "V": nil,
			"T": time.Unix(-1, 0).UTC(), "A": []any{int32(1), "two", []any{}, map[string]any{"in": nil}},
			"F": map[string]any{"deep": map[string]any{"er": []any{true}}}, "": "a name of no bytes",
			"empty": map[string]any{}, "x-delay": int32(-5000),
		},
		Body: []byte("body\x00\xff"),
	}
}

// fromIntake is a task with the message. Its content went through the record's encoding.
func fromIntake(t testing.TB, id string, m amqpmsg.Message) *forward.Message {
	t.Helper()
	b, err := amqpmsg.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = amqpmsg.Decode(b); err != nil {
		t.Fatal(err)
	}
	return &forward.Message{Task: task.Task{
		Topic: "topic", ID: id, Attempt: 1, Due: time.UnixMilli(1796119200123), Scheduled: time.UnixMilli(1796119100456),
		Payload: m.Body,
		AMQP:    &task.AMQP{RoutingKey: m.RoutingKey, Properties: m.Properties, Headers: m.Headers},
	}}
}

// recordOf returns a delivery in the form of a record.
func recordOf(t *testing.T, d amqp.Delivery) []byte {
	t.Helper()
	b, err := amqpmsg.Encode(amqpmsg.Message{
		RoutingKey: d.RoutingKey,
		Properties: amqpmsg.Properties{
			ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
			CorrelationID: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageID: d.MessageId,
			Timestamp: d.Timestamp, Type: d.Type, UserID: d.UserId, AppID: d.AppId,
		},
		Headers: plain(d.Headers), Body: d.Body,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func plain(t amqp.Table) map[string]any {
	m := make(map[string]any, len(t))
	for k, v := range t {
		m[k] = plainValue(v)
	}
	return m
}

func plainValue(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		return plain(v)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = plainValue(v[i])
		}
		return all
	case amqp.Decimal:
		return amqpmsg.Decimal{Scale: v.Scale, Value: v.Value}
	}
	return v
}

// intakeRoute declares a topic exchange and a queue that receives every routing key.
func intakeRoute(queueType string) forward.Route {
	return forward.Route{Exchange: "e", RoutingKey: "#", Declare: &forward.Declare{
		Type: amqp.ExchangeTopic, Queue: "q", QueueType: queueType,
	}}
}

// consumed returns the next n deliveries of a queue.
func consumed(t *testing.T, ch *amqp.Channel, queue string, n int) []amqp.Delivery {
	t.Helper()
	deliveries, err := ch.Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]amqp.Delivery, n)
	for i := range all {
		all[i] = check.Receive(t, "a delivery", deliveries)
	}
	return all
}

// TestAMessageOfTheIntakeArrivesAsItWasPublished: every property and every type of header
// is the same byte for byte, in a classic queue and in a quorum queue.
func TestAMessageOfTheIntakeArrivesAsItWasPublished(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			url := servertest.RabbitMQ(t)
			p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "topic", intakeRoute(queueType))
			ready(t, p)
			transient := amqpmsg.Message{RoutingKey: "k", Properties: amqpmsg.Properties{DeliveryMode: 1}}
			all := []amqpmsg.Message{every(), {Body: []byte{}}, transient}
			batch := make([]*forward.Message, len(all))
			for i, m := range all {
				batch[i] = fromIntake(t, fmt.Sprint("id-", i), m)
			}
			publish(t, p, batch...)
			if n := outcomes(got.all(batch...)); n[forward.Confirmed] != len(batch) {
				t.Fatalf("%v, want all confirmed", n)
			}
			for i, d := range consumed(t, servertest.Channel(t, url), "q", len(all)) {
				want, err := amqpmsg.Encode(all[i])
				if b := recordOf(t, d); err != nil || !bytes.Equal(b, want) {
					t.Errorf("message %d: %v\n got %q\nwant %q", i, err, b, want)
				}
				if want := all[i].Properties.DeliveryMode; d.DeliveryMode != want {
					t.Errorf("message %d: delivery mode %d, want %d", i, d.DeliveryMode, want)
				}
			}
		})
	}
}

// TestAMessageOfTheIntakeWithDuefleetsHeaders: only headers are added.
func TestAMessageOfTheIntakeWithDuefleetsHeaders(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	route := intakeRoute("classic")
	route.IntakeHeaders = true
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "topic", route)
	ready(t, p)
	m := fromIntake(t, "id", every())
	m.Task.Attempt, m.Task.Redelivered = 3, true
	publish(t, p, m)
	got.all(m)
	d := consumed(t, servertest.Channel(t, url), "q", 1)[0]
	own := amqp.Table{
		task.HeaderTopic: "topic", task.HeaderDue: int64(1796119200123), task.HeaderScheduled: int64(1796119100456),
		task.HeaderAttempt: int32(3), task.HeaderRedelivered: true, task.HeaderRoutingKey: "order.eu.due",
		task.HeaderID: "id",
	}
	for k, v := range own {
		if !reflect.DeepEqual(d.Headers[k], v) {
			t.Errorf("header %s: %#v, want %#v", k, d.Headers[k], v)
		}
		delete(d.Headers, k)
	}
	want, err := amqpmsg.Encode(every())
	if b := recordOf(t, d); err != nil || !bytes.Equal(b, want) {
		t.Errorf("the rest: %v\n got %q\nwant %q", err, b, want)
	}
}

// TestAForeignUserIDBecomesAHeader: RabbitMQ would end the channel for a user-id that
// isn't the connection's user.
func TestAForeignUserIDBecomesAHeader(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{url}}), "topic", intakeRoute("classic"))
	ready(t, p)
	m := fromIntake(t, "id", amqpmsg.Message{Properties: amqpmsg.Properties{UserID: "somebody"}})
	publish(t, p, m)
	if r := got.all(m)[0]; r.Outcome != forward.Confirmed {
		t.Fatalf("%+v, want confirmed", r)
	}
	d := consumed(t, servertest.Channel(t, url), "q", 1)[0]
	if d.UserId != "" || d.Headers[task.HeaderUserID] != "somebody" || len(d.Headers) != 1 {
		t.Errorf("user %q, headers %v", d.UserId, d.Headers)
	}
}

// TestPoisonOfTheIntakeIsRefusedAlone: what would end the channel is refused here.
func TestPoisonOfTheIntakeIsRefusedAlone(t *testing.T) {
	t.Parallel()
	p, got := publisher(t, connect(t, forward.Config{URLs: []string{servertest.RabbitMQ(t)}}), "topic",
		intakeRoute("classic"))
	ready(t, p)
	poison := map[string]amqpmsg.Message{
		"CC":            {Headers: map[string]any{"CC": "text"}},
		"BCC":           {Headers: map[string]any{"BCC": int32(1)}},
		"expiration":    {Properties: amqpmsg.Properties{Expiration: "soon"}},
		"delivery mode": {Properties: amqpmsg.Properties{DeliveryMode: 3}},
	}
	for part, m := range poison {
		bad, fine := fromIntake(t, part, m), fromIntake(t, "fine to "+part, amqpmsg.Message{Headers: map[string]any{
			"CC": []any{"other"}, "large": strings.Repeat("v", amqpmsg.MaxProperties-100)}})
		publish(t, p, bad, fine)
		found := got.all(bad, fine)
		if r := found[0]; r.Outcome != forward.Refused || !strings.Contains(r.Reason, part) {
			t.Errorf("%s: %v (%s), want refused", part, r.Outcome, r.Reason)
		}
		if r := found[1]; r.Outcome != forward.Confirmed {
			t.Errorf("%s: the next message is %v (%s), want confirmed", part, r.Outcome, r.Reason)
		}
	}
}

// pickyAs publishes a message of the intake to the exchange "picky".
func pickyAs(t *testing.T, id string, route string, more map[string]any) *forward.Message {
	t.Helper()
	m := every()
	m.Properties.MessageID = ""
	m.Headers["route"] = route
	for k, v := range more {
		m.Headers[k] = v
	}
	return fromIntake(t, id, m)
}

// TestReturnedOfTheIntakeIsNeverConfirmed: without a message-id and without duefleet's
// headers a returned message is found by its content, among thousands in flight.
func TestReturnedOfTheIntakeIsNeverConfirmed(t *testing.T) {
	t.Parallel()
	p, got, _ := picky(t)
	batch := make([]*forward.Message, 3000)
	for i := range batch {
		batch[i] = pickyAs(t, fmt.Sprint("id-", i), []string{"yes", "no"}[i%2], map[string]any{"n": int32(i / 4)})
	}
	publish(t, p, batch...)
	for i, r := range got.all(batch...) {
		want := []forward.Outcome{forward.Confirmed, forward.Returned}[i%2]
		if r.Outcome != want {
			t.Fatalf("message %d: %v (%s), want %v", i, r.Outcome, r.Reason, want)
		}
	}
}

// TestOneOfTwoEqualMessagesIsReturned: the broker takes one of two equal messages and
// returns the other. Exactly one of the two counts as returned.
func TestOneOfTwoEqualMessagesIsReturned(t *testing.T) {
	t.Parallel()
	for _, headers := range []bool{false, true} {
		t.Run(fmt.Sprint("headers ", headers), func(t *testing.T) {
			t.Parallel()
			url := servertest.RabbitMQ(t)
			ch := servertest.Channel(t, url)
			declareExchange(t, ch, "picky", amqp.ExchangeTopic)
			network, via := newProxy(t, url)
			p, got := publisher(t, connect(t, forward.Config{URLs: []string{via}}), "topic",
				forward.Route{Exchange: "picky", IntakeHeaders: headers})
			ready(t, p)
			network.held.shut() // both are in flight until both are answered
			sent := network.methods.Load()
			twins := []*forward.Message{fromIntake(t, "one", every()), fromIntake(t, "two", every())}
			publish(t, p, twins[0])
			check.Until(t, "the broker returns the first", func() bool { return network.methods.Load() > sent })
			declareQueue(t, ch, "routed", "picky", "#", nil, nil)
			publish(t, p, twins[1])
			network.held.open()
			if n := outcomes(got.all(twins...)); n[forward.Confirmed] != 1 || n[forward.Returned] != 1 {
				t.Errorf("%v, want one confirmed and one returned", n)
			}
			if n := stored(t, ch, "routed"); n["m-1"] != 1 {
				t.Errorf("%v in the queue, want one", n)
			}
		})
	}
}

// TestTwoVersionsWithOneContent: a task that is stored again in flight may have the same
// content. If one of the two comes back, nobody can tell which, and neither is confirmed.
func TestTwoVersionsWithOneContent(t *testing.T) {
	t.Parallel()
	p, got, network := picky(t)
	versions := []*forward.Message{pickyAs(t, "twice", "no", nil), pickyAs(t, "twice", "no", nil)}
	versions[1].Task.Due = versions[1].Task.Due.Add(time.Second)
	network.held.shut()
	publish(t, p, versions...)
	network.held.open()
	if n := outcomes(got.all(versions...)); n[forward.Confirmed] != 0 {
		t.Errorf("%v, want none confirmed", n)
	}
}
