package scanner

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/tracing"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/collector"
)

// claimedItem returns an item of shard 3 that was due a delay after it was scheduled. It was
// claimed 100 ms after it was due, in 10 ms, and 5 ms ago.
func claimedItem(provider trace.TracerProvider, delay time.Duration, headers map[string]string) *item {
	heard := time.Now().Add(-5 * time.Millisecond)
	due := time.UnixMilli(1796119200000).UTC()
	c := &claim{polling: &polling{topic: &topic{name: "orders", tracer: tracing.NewTracer(provider)}}, shard: 3,
		asked: heard.Add(-10 * time.Millisecond), heard: heard, batch: shard.Batch{Now: due.Add(100 * time.Millisecond)}}
	return &item{claim: c, claimed: &shard.Claimed{Task: task.Task{
		Topic: "orders", ID: "a", Due: due, Scheduled: due.Add(-delay), Attempt: 2, Redelivered: true, Headers: headers,
	}}}
}

// record makes the spans of an item with an outcome.
func record(i *item, r forward.Result, parked bool) { i.spans(r).end(i, r, parked) }

// TestSpansContinueOrLink: the claim span belongs to the trace that scheduled the task.
// After a long delay it begins a trace and links to that one. The publish span is its child.
func TestSpansContinueOrLink(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		delay time.Duration
		in    func(*item) // changes the item
		spans int
		child bool
	}{
		"soon":      {time.Minute, nil, 2, true},
		"late":      {time.Minute + time.Millisecond, nil, 2, false},
		"unsampled": {time.Hour, func(i *item) { i.claimed.Headers["traceparent"] = collector.UnsampledParent }, 0, false},
		"no trace":  {time.Second, func(i *item) { i.claimed.Headers = nil }, 0, false},
		"no header": {time.Second, func(i *item) { i.claimed.Headers["traceparent"] = "x" }, 0, false},
		"intake": {time.Second, func(i *item) {
			i.claimed.Headers = nil
			i.claimed.AMQP = &task.AMQP{Headers: map[string]any{"traceparent": collector.SampledParent}}
		}, 2, true},
	} {
		provider, recorder := collector.Recorder()
		i := claimedItem(provider, row.delay, map[string]string{"traceparent": collector.SampledParent})
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
		collector.CheckScheduled(t, name, claim, row.child, !row.child)
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
		provider, recorder := collector.Recorder()
		i := claimedItem(provider, time.Second, map[string]string{"traceparent": collector.SampledParent})
		record(i, forward.Result{Outcome: row.outcome, Reason: row.reason, Elapsed: 2 * time.Millisecond}, row.parked)
		claim, publish := recorder.Ended()[0], recorder.Ended()[1]
		if claim.Name() != "claim orders" || publish.Name() != "publish orders" {
			t.Errorf("%s: names %q, %q", row.outcome, claim.Name(), publish.Name())
		}
		if !claim.StartTime().Equal(i.claim.asked) || !claim.EndTime().Equal(i.claim.heard) {
			t.Errorf("%s: claim from %s to %s", row.outcome, claim.StartTime(), claim.EndTime())
		}
		if took := publish.EndTime().Sub(publish.StartTime()); took != 2*time.Millisecond {
			t.Errorf("%s: publish took %s", row.outcome, took)
		}
		want := map[string]string{"messaging.system": "duefleet", "messaging.operation.name": "publish",
			"messaging.operation.type": "send", "messaging.destination.name": "orders", "messaging.message.id": "a",
			"messaging.destination.partition.id": "3", "duefleet.attempt": "2", "duefleet.redelivered": "true",
			"duefleet.due": "2026-12-01T10:00:00.000Z", "duefleet.outcome": row.outcome.String()}
		status := sdktrace.Status{Code: codes.Error, Description: row.reason}
		if row.outcome == forward.Confirmed {
			status = sdktrace.Status{}
			want["duefleet.lateness"] = collector.Attributes(publish)["duefleet.lateness"]
			for _, a := range publish.Attributes() {
				if s := a.Value.AsFloat64(); a.Key == tracing.Lateness && (s < 0.105 || s > 60) {
					t.Errorf("lateness %v s", s)
				}
			}
		} else {
			want["error.type"] = row.outcome.String()
		}
		collector.CheckAttributes(t, row.outcome.String(), publish, want)
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
	provider, recorder := collector.Recorder()
	i := claimedItem(provider, time.Second, map[string]string{"traceparent": collector.SampledParent})
	record(i, forward.Result{Outcome: forward.Unsent, Reason: "stopped"}, false)
	if publish := recorder.Ended()[1]; !publish.StartTime().Equal(i.claim.heard) {
		t.Errorf("began at %s, want %s", publish.StartTime(), i.claim.heard)
	}
}

// TestWithoutATracerNothingIsAllocated for a task. It isn't parallel, because other tests
// would allocate meanwhile.
func TestWithoutATracerNothingIsAllocated(t *testing.T) {
	i := claimedItem(nil, time.Second, map[string]string{"traceparent": collector.SampledParent})
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
	on := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(dropping{}))
	for _, row := range []struct {
		name     string
		provider trace.TracerProvider
		headers  map[string]string
	}{
		{"off", nil, map[string]string{"traceparent": collector.SampledParent}},
		{"on/no-trace", on, nil},
		{"on/unsampled", on, map[string]string{"traceparent": collector.UnsampledParent}},
		{"on/sampled", on, map[string]string{"traceparent": collector.SampledParent}},
	} {
		b.Run(row.name, func(b *testing.B) {
			i := claimedItem(row.provider, time.Hour, row.headers)
			r := forward.Result{Outcome: forward.Confirmed, Elapsed: time.Millisecond}
			b.ReportAllocs()
			for b.Loop() {
				record(i, r, false)
			}
		})
	}
}
