package consumer

import (
	"context"
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// takeIn runs a scanner whose topic has an intake with the exchange "in", and adds
// duefleet's headers to its messages.
func (w *fixture) takeIn() {
	w.t.Helper()
	check.OK(w.t, w.channel.ExchangeDeclare("in", "topic", true, false, false, false, nil))
	check.OK(w.t, w.channel.ExchangeDeclare("in.refused", "fanout", true, false, false, false, nil))
	for _, name := range []string{"in", "in.refused"} {
		_, err := w.channel.QueueDeclare(name, true, false, false, false, nil)
		check.OK(w.t, err)
		check.OK(w.t, w.channel.QueueBind(name, "#", name, false, nil))
	}
	w.reshard(4)
	w.settings.Topics[orders]["intake"] = fleet.Topic{"exchange": "in", "queue": "in", "headers": true}
	check.OK(w.t, fleet.WriteConfig(w.config, w.settings.Document()))
	w.scan()
}

const traced = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"

// fromClient is a message as an AMQP client publishes it, with each type that matters.
func fromClient(id string) amqp.Publishing {
	return amqp.Publishing{
		MessageId: id, Body: []byte("pay"), ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: amqp.Transient,
		Priority: 3, CorrelationId: "c-1", ReplyTo: "answers", Expiration: "600000", Type: "order", AppId: "shop",
		Timestamp: time.Unix(1796119200, 0).UTC(), UserId: "guest",
		Headers: amqp.Table{
			"x-delay": int32(1), "traceparent": traced, "n": int16(7), "t": true, "nothing": nil, "bytes": []byte{0, 255},
			"list": []any{int8(1), amqp.Table{"D": amqp.Decimal{Scale: 2, Value: 5}}}, "text": "v",
		},
	}
}

// TestARetryKeepsAMessageOfTheIntake: each attempt and the next step have all properties
// and headers with their types. A message without an ID has a task with one.
func TestARetryKeepsAMessageOfTheIntake(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"with an ID": "a", "without an ID": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.takeIn()
			var seen log
			var traces []trace.TraceID
			handler := func(ctx context.Context, d task.Delivery) error {
				seen.add(d)
				traces = append(traces, trace.SpanContextFromContext(ctx).TraceID())
				switch len(seen.all()) {
				case 1:
					return errTest
				case 2:
					return d.NextWhen(task.Now(), []byte("next"))
				}
				return nil
			}
			c := w.consume(Config{Policy: Fixed(0, 3), Concurrency: 1, Handler: handler})
			check.OK(w.t, w.channel.PublishWithContext(t.Context(), "in", queue, true, false, fromClient(id)))
			check.Until(t, "the next step", func() bool { return counted(c, done) == 2 })
			c.stop()
			want := task.AMQP{
				RoutingKey: queue,
				Properties: task.AMQPProperties{ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 1,
					Priority: 3, CorrelationID: "c-1", ReplyTo: "answers", Expiration: "600000", MessageID: id, Type: "order",
					AppID: "shop", Timestamp: time.Unix(1796119200, 0).UTC(), UserID: "guest"},
				Headers: map[string]any{
					"x-delay": int32(-1), "traceparent": traced, "n": int16(7), "t": true, "nothing": nil, "bytes": []byte{0, 255},
					"list": []any{int8(1), map[string]any{"D": task.Decimal{Scale: 2, Value: 5}}}, "text": "v",
				},
			}
			all := seen.all()
			for i, d := range all {
				d.AMQP.Properties.Timestamp = d.AMQP.Properties.Timestamp.UTC()
				if !reflect.DeepEqual(*d.AMQP, want) {
					t.Errorf("delivery %d:\n got %+v\nwant %+v", i, *d.AMQP, want)
				}
				if d.ID == "" || id != "" && d.ID != id || d.ID != all[0].ID || d.Attempt != []int{1, 2, 1}[i] ||
					string(d.Payload) != []string{"pay", "pay", "next"}[i] || d.Headers != nil || d.Options != (task.Options{}) {
					t.Errorf("delivery %d: %+v", i, d.Task)
				}
				if traces[i].String() != "0123456789abcdef0123456789abcdef" {
					t.Errorf("delivery %d: trace %s", i, traces[i])
				}
			}
		})
	}
}

// TestParseReadsAMessageOfTheIntake: what RabbitMQ and duefleet added is left out, and a
// foreign user-id is back in its place.
func TestParseReadsAMessageOfTheIntake(t *testing.T) {
	t.Parallel()
	p := message(func(p *amqp.Publishing) {
		p.MessageId, p.Type = "", "kind"
		p.Headers[task.HeaderID], p.Headers[task.HeaderRoutingKey] = "made", "order.eu"
		p.Headers[task.HeaderUserID] = "somebody"
		p.Headers["n"], p.Headers["k"] = uint8(7), "v"
		p.Headers["x-death"] = []any{amqp.Table{"count": int64(1)}}
		p.Headers["x-first-death-queue"], p.Headers["x-delivery-count"] = queue, int64(2)
	})
	d := amqp.Delivery{Headers: p.Headers, Type: p.Type, Body: p.Body, RoutingKey: "dead", CorrelationId: "c",
		Expiration: "soon"}
	if _, err := Parse(d); err == nil {
		t.Error("an expiration that is no number is read")
	}
	d.Expiration = ""
	got, err := Parse(d)
	check.OK(t, err)
	want := &task.AMQP{
		RoutingKey: "order.eu", Headers: map[string]any{"n": uint8(7), "k": "v"},
		Properties: task.AMQPProperties{CorrelationID: "c", Type: "kind", UserID: "somebody"},
	}
	if !reflect.DeepEqual(got.AMQP, want) || got.ID != "made" || got.Topic != orders {
		t.Errorf("got %+v of %s", got.AMQP, got.ID)
	}
}
