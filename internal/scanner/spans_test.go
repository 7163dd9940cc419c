package scanner

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

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/tracing"
	"github.com/duefleet/duefleet/task"
)

const (
	sampledParent   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// claimedItem returns an item of shard 3 that was due a delay after it was scheduled. It was
// claimed 100 ms after it was due, in 10 ms, and 5 ms ago.
func claimedItem(tracer trace.Tracer, delay time.Duration, headers map[string]string) *item {
	heard := time.Now().Add(-5 * time.Millisecond)
	due := time.UnixMilli(1796119200000).UTC()
	d := &delivery{topic: &topic{name: "orders", tracer: tracer}, shard: 3, asked: heard.Add(-10 * time.Millisecond),
		heard: heard, batch: shard.Batch{Now: due.Add(100 * time.Millisecond)}}
	return &item{delivery: d, claimed: &shard.Claimed{Task: task.Task{
		Topic: "orders", ID: "a", Due: due, Scheduled: due.Add(-delay), Attempt: 2, Redelivered: true, Headers: headers,
	}}}
}

// record makes the spans of an item with an outcome.
func record(i *item, r forward.Result, parked bool) { i.spans(r).end(i, r, parked) }

func recordingTracer() (trace.Tracer, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	return tracing.NewTracer(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))), recorder
}

func attributesOf(s sdktrace.ReadOnlySpan) map[attribute.Key]string {
	all := map[attribute.Key]string{}
	for _, a := range s.Attributes() {
		all[a.Key] = a.Value.String()
	}
	return all
}

// TestSpansContinueOrLink: the claim span belongs to the trace that scheduled the task.
// After a long delay it begins a trace and links to that one. The publish span is its child.
func TestSpansContinueOrLink(t *testing.T) {
	t.Parallel()
	scheduled := trace.SpanContextFromContext(tracing.Named(t.Context(), map[string]string{"traceparent": sampledParent}))
	for name, row := range map[string]struct {
		delay time.Duration
		in    func(*item) // changes the item
		spans int
		child bool
	}{
		"soon":      {time.Minute, nil, 2, true},
		"late":      {time.Minute + time.Millisecond, nil, 2, false},
		"unsampled": {time.Hour, func(i *item) { i.claimed.Headers["traceparent"] = unsampledParent }, 0, false},
		"no trace":  {time.Second, func(i *item) { i.claimed.Headers = nil }, 0, false},
		"no header": {time.Second, func(i *item) { i.claimed.Headers["traceparent"] = "x" }, 0, false},
		"intake": {time.Second, func(i *item) {
			i.claimed.Headers = nil
			i.claimed.AMQP = &task.AMQP{Headers: map[string]any{"traceparent": sampledParent}}
		}, 2, true},
	} {
		tracer, recorder := recordingTracer()
		i := claimedItem(tracer, row.delay, map[string]string{"traceparent": sampledParent})
		if row.in != nil {
			row.in(i)
		}
		record(i, forward.Result{Outcome: forward.Confirmed, Elapsed: time.Millisecond}, false)
		spans := recorder.Ended()
		if len(spans) != row.spans {
			t.Errorf("%s: %d spans, want %d", name, len(spans), row.spans)
			continue
		}
		if len(spans) == 0 {
			continue
		}
		claim, publish := spans[0], spans[1]
		if same := claim.SpanContext().TraceID() == scheduled.TraceID(); same != row.child {
			t.Errorf("%s: the claim is in the trace of the call: %v", name, same)
		}
		if child := claim.Parent().SpanID() == scheduled.SpanID(); child != row.child {
			t.Errorf("%s: the claim is a child of the schedule span: %v", name, child)
		}
		if links := claim.Links(); row.child != (len(links) == 0) || !row.child && !links[0].SpanContext.Equal(scheduled) {
			t.Errorf("%s: links %v", name, links)
		}
		if publish.Parent().SpanID() != claim.SpanContext().SpanID() {
			t.Errorf("%s: the publish span isn't a child of the claim span", name)
		}
	}
}

// TestSpansSayWhatHappened: times, attributes and status for each outcome.
func TestSpansSayWhatHappened(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		outcome forward.Outcome
		reason  string
		parked  bool
	}{
		{forward.Confirmed, "", false},
		{forward.Returned, "returned: 312 NO_ROUTE", false},
		{forward.Refused, "the broker refused the message", true},
		{forward.Unknown, "the channel was lost", false},
		{forward.Overdue, "no answer", false},
	} {
		tracer, recorder := recordingTracer()
		i := claimedItem(tracer, time.Second, map[string]string{"traceparent": sampledParent})
		record(i, forward.Result{Outcome: row.outcome, Reason: row.reason, Elapsed: 2 * time.Millisecond}, row.parked)
		claim, publish := recorder.Ended()[0], recorder.Ended()[1]
		if claim.Name() != "claim orders" || publish.Name() != "publish orders" {
			t.Errorf("%s: names %q, %q", row.outcome, claim.Name(), publish.Name())
		}
		if !claim.StartTime().Equal(i.delivery.asked) || !claim.EndTime().Equal(i.delivery.heard) {
			t.Errorf("%s: claim from %s to %s", row.outcome, claim.StartTime(), claim.EndTime())
		}
		if took := publish.EndTime().Sub(publish.StartTime()); took != 2*time.Millisecond {
			t.Errorf("%s: publish took %s", row.outcome, took)
		}
		has := attributesOf(publish)
		want := map[attribute.Key]string{"messaging.system": "duefleet", "messaging.operation.name": "publish",
			"messaging.operation.type": "send", "messaging.destination.name": "orders", "messaging.message.id": "a",
			"messaging.destination.partition.id": "3", "duefleet.attempt": "2", "duefleet.redelivered": "true",
			"duefleet.due": "2026-12-01T10:00:00.000Z", "duefleet.outcome": row.outcome.String()}
		status := sdktrace.Status{Code: codes.Error, Description: row.reason}
		if row.outcome == forward.Confirmed {
			status = sdktrace.Status{}
			want["duefleet.lateness"] = has["duefleet.lateness"]
			for _, a := range publish.Attributes() {
				if s := a.Value.AsFloat64(); a.Key == tracing.Lateness && (s < 0.105 || s > 60) {
					t.Errorf("lateness %v s", s)
				}
			}
		} else {
			want["error.type"] = row.outcome.String()
		}
		if !maps.Equal(has, want) {
			t.Errorf("%s: attributes %v, want %v", row.outcome, has, want)
		}
		if publish.Status() != status {
			t.Errorf("%s: status %v", row.outcome, publish.Status())
		}
		if events := publish.Events(); (len(events) == 1 && events[0].Name == "parked") != row.parked {
			t.Errorf("%s: events %v", row.outcome, events)
		}
	}
}

// TestUnsentTasksHaveNoTimeOfWriting: the publish span begins when the claim's answer came.
func TestUnsentTasksHaveNoTimeOfWriting(t *testing.T) {
	t.Parallel()
	tracer, recorder := recordingTracer()
	i := claimedItem(tracer, time.Second, map[string]string{"traceparent": sampledParent})
	record(i, forward.Result{Outcome: forward.Unsent, Reason: "stopped"}, false)
	if publish := recorder.Ended()[1]; !publish.StartTime().Equal(i.delivery.heard) {
		t.Errorf("began at %s, want %s", publish.StartTime(), i.delivery.heard)
	}
}

// TestWithoutATracerNothingIsAllocated for a task. It isn't parallel, because other tests
// would allocate meanwhile.
func TestWithoutATracerNothingIsAllocated(t *testing.T) {
	i := claimedItem(nil, time.Second, map[string]string{"traceparent": sampledParent})
	r := forward.Result{Outcome: forward.Confirmed, Elapsed: time.Millisecond}
	if n := testing.AllocsPerRun(100, func() { record(i, r, false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// dropping is a processor that drops spans.
type dropping struct{ sdktrace.SpanProcessor }

func (dropping) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

func (dropping) OnEnd(sdktrace.ReadOnlySpan) {}

// BenchmarkSpans measures what a scanner does for the spans of one task.
func BenchmarkSpans(b *testing.B) {
	on := tracing.NewTracer(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(dropping{})))
	for _, row := range []struct {
		name    string
		tracer  trace.Tracer
		headers map[string]string
	}{
		{"off", nil, map[string]string{"traceparent": sampledParent}},
		{"on/no-trace", on, nil},
		{"on/unsampled", on, map[string]string{"traceparent": unsampledParent}},
		{"on/sampled", on, map[string]string{"traceparent": sampledParent}},
	} {
		b.Run(row.name, func(b *testing.B) {
			i := claimedItem(row.tracer, time.Hour, row.headers)
			r := forward.Result{Outcome: forward.Confirmed, Elapsed: time.Millisecond}
			b.ReportAllocs()
			for b.Loop() {
				record(i, r, false)
			}
		})
	}
}
