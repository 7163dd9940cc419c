package consumer

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/collector"
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

// TestASpanContinuesOrLinks: the span of a handler belongs to the trace that scheduled the
// task. After a long delay it begins a trace and links to that one. An unsampled trace
// makes no span.
func TestASpanContinuesOrLinks(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	provider, recorder := collector.Recorder()
	calls := make(chan handled, 10)
	w.consume(Config{
		TracerProvider: provider,
		Handler: func(ctx context.Context, d task.Delivery) error {
			calls <- handled{d, trace.SpanContextFromContext(ctx)}
			return nil
		},
	})
	for _, row := range []struct {
		id     string
		delay  time.Duration
		parent string

		span, child, link bool
	}{
		{"soon", time.Minute, collector.SampledParent, true, true, false},
		{"late", time.Minute + time.Millisecond, collector.SampledParent, true, false, true},
		{"no trace", time.Hour, "", true, false, false},
		{"soon, unsampled", time.Second, collector.UnsampledParent, false, true, false},
		{"late, unsampled", time.Hour, collector.UnsampledParent, false, true, false},
	} {
		before := len(recorder.Started())
		w.publish(deliveredAfter(row.id, row.delay, row.parent))
		got := check.Receive(t, "the handler is called", calls)
		if same := got.span.TraceID() == collector.Scheduled().TraceID(); same != row.child {
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
		collector.CheckScheduled(t, row.id, s, row.child, row.link)
	}
}

// TestASpanHasTheOutcomeOfItsHandler, and a failed one has its error as the status.
func TestASpanHasTheOutcomeOfItsHandler(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	provider, recorder := collector.Recorder()
	w.consume(Config{
		TracerProvider: provider,
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
	check.Count(t, "spans", len(want), func() int { return len(recorder.Ended()) })
	for _, s := range recorder.Ended() {
		has := collector.Attributes(s)
		id := has["messaging.message.id"]
		row := want[id]
		if s.Name() != "process orders" || s.SpanKind() != trace.SpanKindConsumer {
			t.Errorf("%s: name %q, kind %s", id, s.Name(), s.SpanKind())
		}
		if got := s.Status(); got.Code != row.code || got.Description != row.status {
			t.Errorf("%s: status %v", id, got)
		}
		attributes := map[string]string{"messaging.system": "duefleet", "messaging.operation.name": "process",
			"messaging.operation.type": "process", "messaging.destination.name": orders, "messaging.message.id": id,
			"duefleet.outcome": row.outcome, "duefleet.attempt": "1", "duefleet.due": has["duefleet.due"]}
		if row.code == codes.Error {
			attributes["error.type"] = row.outcome
		}
		collector.CheckAttributes(t, id, s, attributes)
		if _, err := time.Parse(time.RFC3339, has["duefleet.due"]); err != nil {
			t.Error(err)
		}
	}
}

// TestWithoutAProviderAHandlerHasNoSpan, and a task without a trace costs no allocation. It
// isn't parallel, because other tests would allocate meanwhile.
func TestWithoutAProviderAHandlerHasNoSpan(t *testing.T) {
	c, delivered, ctx := &Consumer{}, deliveredAfter("a", time.Hour, ""), t.Context()
	traced := deliveredAfter("b", 0, collector.SampledParent)
	if _, span := c.startProcess(ctx, &traced); span != nil {
		t.Error("a span without a provider")
	}
	if n := testing.AllocsPerRun(100, func() {
		_, span := c.startProcess(ctx, &delivered)
		endProcess(span, done, nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
