package consumer

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// handled is one call of a handler, and the span that its context carried.
type handled struct {
	task.Delivery
	span trace.SpanContext
}

// inSpan returns ctx within a span of a trace with this first byte.
func inSpan(ctx context.Context, first byte) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{first, 15: 1}, SpanID: trace.SpanID{first, 7: 1}, TraceFlags: trace.FlagsSampled,
	}))
}

// TestATraceGoesFromTheProducerToTheHandler through a scanner and RabbitMQ, a retry, a
// next step and a task that the handler schedules.
func TestATraceGoesFromTheProducerToTheHandler(t *testing.T) {
	t.Parallel()
	eitherForm(t, func(t *testing.T, w *fixture) {
		w.serve()
		calls := make(chan handled, 10)
		w.consume(Config{Policy: Fixed(0, 3), MinStep: -1, Handler: func(ctx context.Context, d task.Delivery) error {
			calls <- handled{d, trace.SpanContextFromContext(ctx)}
			switch {
			case d.ID == "a" && d.Attempt == 1 && string(d.Payload) == "first":
				return errTest
			case d.ID == "a" && string(d.Payload) == "first":
				_, err := w.producer.Schedule(ctx, producer.Request{Topic: orders, ID: "child", When: producer.Now()})
				if err != nil {
					return err
				}
				return d.NextWhen(task.Now(), []byte("second"))
			}
			return nil
		}})
		ctx := inSpan(t.Context(), 7)
		_, err := w.producer.Schedule(ctx, producer.Request{
			Topic: orders, ID: "a", When: producer.Now(), Payload: []byte("first"),
		})
		check.OK(w.t, err)
		sent := trace.SpanContextFromContext(ctx)
		seen := map[string]bool{}
		for range 4 {
			got := check.Receive(t, "the handler is called", calls)
			seen[got.ID+" "+string(got.Payload)] = true
			same := got.span.TraceID() == sent.TraceID() && got.span.SpanID() == sent.SpanID()
			if !same || !got.span.IsRemote() || !got.span.IsSampled() {
				t.Errorf("%s %s, attempt %d: got span %+v", got.ID, got.Payload, got.Attempt, got.span)
			}
		}
		if !seen["a first"] || !seen["a second"] || !seen["child "] {
			t.Errorf("handled %v", seen)
		}
	})
}

// TestTasksOfOneCallShareItsTrace: tasks of one ScheduleMany share the trace, except one
// that names its own. Without a span there is no trace.
func TestTasksOfOneCallShareItsTrace(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	calls := make(chan handled, 10)
	w.consume(Config{Handler: func(ctx context.Context, d task.Delivery) error {
		calls <- handled{d, trace.SpanContextFromContext(ctx)}
		return nil
	}})
	own := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	for _, r := range w.producer.ScheduleMany(inSpan(t.Context(), 9), []producer.Request{
		{Topic: orders, ID: "a", When: producer.Now()},
		{Topic: orders, ID: "b", When: producer.Now()},
		{Topic: orders, ID: "own", When: producer.Now(), Headers: own},
	}) {
		check.OK(w.t, r.Err)
	}
	w.schedule("none", "")
	shared := trace.TraceID{9, 15: 1}.String()
	want := map[string]string{
		"a": shared, "b": shared, "own": "0af7651916cd43dd8448eb211c80319c", "none": trace.TraceID{}.String(),
	}
	for range want {
		got := check.Receive(t, "the handler is called", calls)
		if id := got.span.TraceID().String(); id != want[got.ID] {
			t.Errorf("%s: got trace %s, want %s", got.ID, id, want[got.ID])
		}
		if got.ID == "none" && len(got.Headers) > 0 {
			t.Errorf("a task of no span has headers %v", got.Headers)
		}
	}
}
