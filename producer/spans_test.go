package producer

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/internal/tracing"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/collector"
)

// recorded returns a client that makes spans, and the recorder that keeps them.
func (f *fleet) recorded() (*Client, *tracetest.SpanRecorder) {
	f.t.Helper()
	provider, recorder := collector.Recorder()
	c, err := New(Config{Redis: f.rdb, Prefix: f.prefix, TracerProvider: provider})
	check.OK(f.t, err)
	return c, recorder
}

// named returns the span context that the stored headers of a task name.
func (f *fleet) named(c *Client, id string) trace.SpanContext {
	f.t.Helper()
	s, err := c.Get(f.t.Context(), orders, id)
	check.OK(f.t, err)
	return trace.SpanContextFromContext(tracing.Named(context.Background(), s.Headers))
}

// TestScheduleMakesASpanThatTheTaskNames: the span continues the trace of the caller, and
// the headers of the task name it.
func TestScheduleMakesASpanThatTheTaskNames(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c, recorder := f.recorded()
	_, err := c.Schedule(inSpan(f.t.Context(), t), Request{Topic: orders, ID: "a", When: In(time.Hour)})
	check.OK(f.t, err)
	spans := recorder.Ended()
	check.Equal(t, "spans", len(spans), 1)
	s := spans[0]
	check.Equal(t, "name", s.Name(), "schedule orders")
	check.Equal(t, "kind", s.SpanKind(), trace.SpanKindProducer)
	check.Equal(t, "parent", s.Parent().SpanID(), trace.SpanID{1, 2, 3, 4, 5, 6, 7, 8})
	check.Equal(t, "status", s.Status().Code, codes.Unset)
	check.Equal(t, "span in the headers", f.named(c, "a").SpanID(), s.SpanContext().SpanID())
	check.Equal(t, "trace in the headers", f.named(c, "a").TraceID(), s.Parent().TraceID())
	collector.CheckAttributes(t, "a", s, map[string]string{"messaging.system": "duefleet",
		"messaging.operation.name": "schedule", "messaging.operation.type": "send",
		"messaging.destination.name": orders, "messaging.message.id": "a"})
}

// TestASpanHasTheOutcomeOfItsCall: a failure is the status, and a condition that isn't met
// is none.
func TestASpanHasTheOutcomeOfItsCall(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c, recorder := f.recorded()
	for _, row := range []struct {
		r             Request
		code          codes.Code
		failed, ended string
	}{
		{Request{ID: "a", When: In(time.Hour)}, codes.Unset, "", ""},
		{Request{ID: "a", When: In(time.Hour), IfAbsent: true}, codes.Unset, "", "exists"},
		{Request{ID: "b", When: In(time.Hour), IfPresent: true}, codes.Unset, "", "not_found"},
		{Request{ID: "", When: In(time.Hour)}, codes.Error, "invalid", ""},
	} {
		row.r.Topic = orders
		_, _ = c.Schedule(f.t.Context(), row.r)
		s := recorder.Ended()[len(recorder.Ended())-1]
		check.Equal(t, "status", s.Status().Code, row.code)
		check.Equal(t, "error.type", collector.Attributes(s)["error.type"], row.failed)
		check.Equal(t, "outcome", collector.Attributes(s)["duefleet.outcome"], row.ended)
	}
}

// TestTasksOfOneCallShareItsSpan: ScheduleMany makes one span, which all its tasks name.
// One that names another trace keeps that, and the span links to it.
func TestTasksOfOneCallShareItsSpan(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c, recorder := f.recorded()
	results := c.ScheduleMany(f.t.Context(), []Request{
		{Topic: orders, ID: "a", When: In(time.Hour)},
		{Topic: orders, ID: "b", When: In(time.Hour)},
		{Topic: orders, ID: "own", When: In(time.Hour), Headers: map[string]string{"traceparent": parentOfTest}},
		{Topic: orders, ID: "", When: In(time.Hour)},
	})
	if i := slices.IndexFunc(results[:3], func(r Result) bool { return r.Err != nil }); i >= 0 {
		t.Fatal(results[i].Err)
	}
	spans := recorder.Ended()
	check.Equal(t, "spans", len(spans), 1)
	s := spans[0]
	check.Equal(t, "name", s.Name(), "schedule orders")
	check.Equal(t, "tasks", collector.Attributes(s)["messaging.batch.message_count"], "4")
	check.Equal(t, "error.type", collector.Attributes(s)["error.type"], "invalid")
	for _, id := range []string{"a", "b"} {
		check.Equal(t, "span of "+id, f.named(c, id).SpanID(), s.SpanContext().SpanID())
	}
	own := f.named(c, "own").SpanID()
	check.Equal(t, "own span", own, trace.SpanID{1, 2, 3, 4, 5, 6, 7, 8})
	check.Equal(t, "links", len(s.Links()), 1)
	check.Equal(t, "link", s.Links()[0].SpanContext.SpanID(), own)
}

// TestASpanOfSeveralTopicsNamesNone, because its name would be wrong for some tasks.
func TestASpanOfSeveralTopicsNamesNone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c, recorder := f.recorded()
	c.ScheduleMany(f.t.Context(), []Request{{Topic: orders, ID: "a", When: Now()}, {Topic: "bills", ID: "a", When: Now()}})
	s := recorder.Ended()[0]
	check.Equal(t, "name", s.Name(), "schedule")
	check.Equal(t, "topic", collector.Attributes(s)["messaging.destination.name"], "")
}

// TestAnUnsampledCallerMakesNoSpan, and the task says so, so that nothing else makes one.
func TestAnUnsampledCallerMakesNoSpan(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c, recorder := f.recorded()
	unsampled := trace.SpanContextFromContext(inSpan(f.t.Context(), t)).WithTraceFlags(0)
	_, err := c.Schedule(trace.ContextWithSpanContext(f.t.Context(), unsampled),
		Request{Topic: orders, ID: "a", When: In(time.Hour)})
	check.OK(f.t, err)
	check.Equal(t, "spans", len(recorder.Ended()), 0)
	check.Equal(t, "trace in the headers", f.named(c, "a").TraceID(), unsampled.TraceID())
	check.Equal(t, "sampled", f.named(c, "a").IsSampled(), false)
}

// TestWithoutAProviderNoSpanIsStarted, and nothing is allocated. It isn't parallel, because
// other tests would allocate meanwhile.
func TestWithoutAProviderNoSpanIsStarted(t *testing.T) {
	c := &Client{}
	ctx, r := t.Context(), []Request{{Topic: orders, ID: "a"}}
	var err error
	if n := testing.AllocsPerRun(100, func() {
		_, one := c.startSchedule(ctx, &r[0])
		one.end(&err)
		_, batch := c.startMany(ctx, r)
		batch.endBatch(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
