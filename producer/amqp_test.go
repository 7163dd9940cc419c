package producer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// bodies returns the stored records by ID, without the head in which times are.
func (f *fleet) bodies() map[string]string {
	f.t.Helper()
	all := map[string]string{}
	for at := range f.placement().Scanned() {
		records, err := f.rdb.HGetAll(f.t.Context(), fmt.Sprintf("%s:task:{orders:%d}", f.prefix, at)).Result()
		check.OK(f.t, err)
		for id, record := range records {
			const head = 19 // format, due, scheduled, op
			all[id] = record[:1] + record[head:]
		}
	}
	return all
}

// TestAMessageOfAnIntakeCanBeCopied: Schedule and ScheduleMany store of Stored.AMQP the record
// that the intake stores, byte for byte, also within a trace.
func TestAMessageOfAnIntakeCanBeCopied(t *testing.T) {
	t.Parallel()
	here, there := newFleet(t, 2), newFleet(t, 3)
	message := amqpmsg.Message{
		RoutingKey: "order.eu", Properties: amqpmsg.Properties{ContentType: "text/plain", AppID: "\xff", MessageID: "m"},
		Headers: map[string]any{"n": int64(7), "list": []any{true, nil}, amqpmsg.HeaderHops: int64(1)},
		Body:    []byte("payload"),
	}
	body, err := amqpmsg.Encode(message)
	check.OK(here.t, err)
	fixture.Store(t, here.Topic, fixture.Entries(In(time.Hour), body, "a", "b")...)
	var requests []Request
	for s, err := range here.client().List(here.t.Context(), orders, Filter{}) {
		check.OK(here.t, err)
		requests = append(requests, Request{Topic: orders, ID: s.ID, When: At(s.Due), Payload: s.Payload, AMQP: s.AMQP})
	}
	traced := trace.ContextWithSpanContext(there.t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
	}))
	c := there.client()
	_, err = c.Schedule(traced, requests[0].WithTrace(traced))
	check.OK(there.t, err)
	check.OK(there.t, c.ScheduleMany(traced, requests[1:])[0].Err)
	check.Equal(t, "records", fmt.Sprintf("%q", there.bodies()), fmt.Sprintf("%q", here.bodies()))
}

// TestARequestWithAMQPHasRules: what breaks one is refused, alone and in a batch, and nothing is
// stored.
func TestARequestWithAMQPHasRules(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	for want, change := range map[string]func(*Request){
		"amqp: must not be set together with content_type; got both": func(r *Request) { r.ContentType = "text/plain" },
		"amqp: must not be set together with headers; got both": func(r *Request) {
			r.Headers = map[string]string{"k": "v"}
		},
		"amqp: must not be set together with options; got both": func(r *Request) { r.Options.Priority = 1 },
		"amqp.properties.reply_to: must be a queue that others can reach; got amq.rabbitmq.reply-to": func(r *Request) {
			r.AMQP.Properties.ReplyTo = "amq.rabbitmq.reply-to"
		},
		"amqp.headers.n: must be of one of the types that task.AMQP lists; got the Go type int": func(r *Request) {
			r.AMQP.Headers = map[string]any{"n": 1}
		},
		"payload: must be at most": func(r *Request) { r.Payload = make([]byte, task.DefaultMaxPayload+1) },
	} {
		r := request("o-1", In(time.Hour))
		r.AMQP = &task.AMQP{}
		change(&r)
		_, alone := c.Schedule(f.t.Context(), r)
		many := c.ScheduleMany(f.t.Context(), []Request{r})[0].Err
		for _, err := range []error{alone, many, r.Check(task.DefaultMaxPayload, time.Now())} {
			is(t, err, task.ErrInvalid)
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
	f.inPlace(nil)
}

// TestWithTraceLeavesAMessageOfAnIntake as it is.
func TestWithTraceLeavesAMessageOfAnIntake(t *testing.T) {
	t.Parallel()
	traced := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
	}))
	r := Request{AMQP: &task.AMQP{}}.WithTrace(traced)
	check.Equal(t, "headers", len(r.Headers), 0)
}
