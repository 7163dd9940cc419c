package consumer

import (
	"context"
	"maps"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/wait"
)

// deliveredAfter returns a task that is due a delay after it was scheduled, in a trace with
// this traceparent.
func deliveredAfter(id string, delay time.Duration, parent string) task.Task {
	due := time.UnixMilli(time.Now().UnixMilli())
	t := task.Task{Topic: orders, ID: id, Attempt: 1, Due: due, Scheduled: due.Add(-delay)}
	if parent != "" {
		t.Headers = map[string]string{"traceparent": parent}
	}
	return t
}

const (
	sampledParent   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// TestASpanContinuesOrLinks: the span of a handler belongs to the trace that scheduled the
// task. After a long delay it begins a trace and links to that one. An unsampled trace
// makes no span.
func TestASpanContinuesOrLinks(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	recorder := tracetest.NewSpanRecorder()
	calls := make(chan handled, 10)
	w.consume(Config{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)),
		Handler: func(ctx context.Context, d task.Delivery) error {
			calls <- handled{d, trace.SpanContextFromContext(ctx)}
			return nil
		},
	})
	scheduled := trace.SpanContextFromContext(traceOf(t, sampledParent))
	for _, row := range []struct {
		id     string
		delay  time.Duration
		parent string

		span, child, link bool
	}{
		{"soon", time.Minute, sampledParent, true, true, false},
		{"late", time.Minute + time.Millisecond, sampledParent, true, false, true},
		{"no trace", time.Hour, "", true, false, false},
		{"soon, unsampled", time.Second, unsampledParent, false, true, false},
		{"late, unsampled", time.Hour, unsampledParent, false, true, false},
	} {
		before := len(recorder.Started())
		w.publish(deliveredAfter(row.id, row.delay, row.parent))
		got := wait.Receive(t, "the handler is called", calls)
		if same := got.span.TraceID() == scheduled.TraceID(); same != row.child {
			t.Errorf("%s: the handler is in the trace of the call: %v", row.id, same)
		}
		started := recorder.Started()[before:]
		if (len(started) == 1) != row.span {
			t.Errorf("%s: %d spans", row.id, len(started))
		}
		if !row.span || len(started) != 1 {
			continue
		}
		s := started[0]
		if s.SpanContext().SpanID() != got.span.SpanID() {
			t.Errorf("%s: the handler's context carries another span", row.id)
		}
		if child := s.Parent().SpanID() == scheduled.SpanID(); child != row.child {
			t.Errorf("%s: child of the schedule span: %v", row.id, child)
		}
		if links := s.Links(); (len(links) == 1) != row.link || row.link && !links[0].SpanContext.Equal(scheduled) {
			t.Errorf("%s: links %v", row.id, links)
		}
	}
}

// traceOf returns a context with the span that a traceparent names.
func traceOf(t *testing.T, parent string) context.Context {
	t.Helper()
	c := &Consumer{}
	ctx, span := c.startProcess(t.Context(), &task.Task{Headers: map[string]string{"traceparent": parent}})
	if span != nil {
		t.Fatal("a span without a provider")
	}
	return ctx
}

// TestASpanHasTheOutcomeOfItsHandler, and a failed one has its error as the status.
func TestASpanHasTheOutcomeOfItsHandler(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	recorder := tracetest.NewSpanRecorder()
	w.consume(Config{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)),
		Policy:         Fixed(time.Hour, 3),
		Handler: func(_ context.Context, d task.Delivery) error {
			switch d.ID {
			case "fails":
				return errTest
			case "panics":
				panic("test")
			case "waits":
				return Later(errTest, time.Hour)
			case "parks":
				return Park(errTest)
			}
			return nil
		},
	})
	want := map[string]struct {
		outcome string
		code    codes.Code
		status  string
	}{
		"works":  {"done", codes.Unset, ""},
		"fails":  {"retried", codes.Error, errTest.Error()},
		"panics": {"retried", codes.Error, "panic: test"},
		"waits":  {"postponed", codes.Unset, ""},
		"parks":  {"parked", codes.Error, errTest.Error()},
	}
	for id := range want {
		w.publish(deliveredAfter(id, 0, ""))
	}
	wait.Count(t, "spans", len(want), func() int { return len(recorder.Ended()) })
	for _, s := range recorder.Ended() {
		has := map[attribute.Key]string{}
		for _, a := range s.Attributes() {
			has[a.Key] = a.Value.String()
		}
		id := has["messaging.message.id"]
		row := want[id]
		if s.Name() != "process orders" || s.SpanKind() != trace.SpanKindConsumer {
			t.Errorf("%s: name %q, kind %s", id, s.Name(), s.SpanKind())
		}
		if got := s.Status(); got.Code != row.code || got.Description != row.status {
			t.Errorf("%s: status %v", id, got)
		}
		attributes := map[attribute.Key]string{"messaging.system": "duefleet", "messaging.operation.name": "process",
			"messaging.operation.type": "process", "messaging.destination.name": orders, "messaging.message.id": id,
			"duefleet.outcome": row.outcome, "duefleet.attempt": "1", "duefleet.due": has["duefleet.due"]}
		if row.code == codes.Error {
			attributes["error.type"] = row.outcome
		}
		if !maps.Equal(has, attributes) {
			t.Errorf("%s: attributes %v, want %v", id, has, attributes)
		}
		if _, err := time.Parse(time.RFC3339, has["duefleet.due"]); err != nil {
			t.Error(err)
		}
	}
}

// TestWithoutAProviderAHandlerHasNoSpan, and a task without a trace costs no allocation. It
// isn't parallel, because other tests would allocate meanwhile.
func TestWithoutAProviderAHandlerHasNoSpan(t *testing.T) {
	c, delivered, ctx := &Consumer{}, deliveredAfter("a", time.Hour, ""), t.Context()
	if n := testing.AllocsPerRun(100, func() {
		_, span := c.startProcess(ctx, &delivered)
		endProcess(span, done, nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
