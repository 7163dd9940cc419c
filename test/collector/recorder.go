package collector

import (
	"context"
	"maps"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// The traceparent of a call that schedules a task, in a trace that is sampled or isn't.
const (
	SampledParent   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	UnsampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// Recorder returns a provider and the recorder of its spans, for spans of the test's own
// process.
func Recorder() (*sdktrace.TracerProvider, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), recorder
}

// Attributes returns the attributes of a span as texts.
func Attributes(s sdktrace.ReadOnlySpan) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// CheckAttributes reports a span whose attributes, as texts, aren't want.
func CheckAttributes(t testing.TB, what string, s sdktrace.ReadOnlySpan, want map[string]string) {
	t.Helper()
	if got := Attributes(s); !maps.Equal(got, want) {
		t.Errorf("%s: attributes: got %v, want %v", what, got, want)
	}
}

// Scheduled returns the span that SampledParent names.
func Scheduled() trace.SpanContext {
	header := propagation.MapCarrier{"traceparent": SampledParent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), header))
}

// CheckScheduled checks whether a span is a child of Scheduled, and whether it links to
// Scheduled alone. Without link it must have no links.
func CheckScheduled(t testing.TB, what string, s sdktrace.ReadOnlySpan, child, link bool) {
	t.Helper()
	scheduled := Scheduled()
	if same := s.SpanContext().TraceID() == scheduled.TraceID(); same != child {
		t.Errorf("%s: in the trace of the call: %v, want %v", what, same, child)
	}
	if is := s.Parent().SpanID() == scheduled.SpanID(); is != child {
		t.Errorf("%s: child of the schedule span: %v, want %v", what, is, child)
	}
	links := s.Links()
	if linked := len(links) == 1 && links[0].SpanContext.Equal(scheduled); linked != link || !link && len(links) > 0 {
		t.Errorf("%s: links %v, want one to the schedule span: %v", what, links, link)
	}
}
