package producer

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

const parentOfTest = "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01"

// inSpan returns a context within a span, as in an application with tracing.
func inSpan(ctx context.Context, t *testing.T) context.Context {
	t.Helper()
	state, err := trace.ParseTraceState("vendor=x")
	check.OK(t, err)
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID:    trace.TraceID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		SpanID:     trace.SpanID{1, 2, 3, 4, 5, 6, 7, 8},
		TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
}

// many returns n headers with keys of one byte. The value of the first has more bytes.
func many(n, more int) map[string]string {
	headers := map[string]string{}
	for i := range n {
		headers[string(rune('A'+i))] = ""
	}
	headers["A"] = strings.Repeat("x", more)
	return headers
}

// TestATaskGetsTheTraceOfItsCall, unless its headers name a trace or the limits leave no
// room.
func TestATaskGetsTheTraceOfItsCall(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.client()
	const state = "vendor=x"
	for name, row := range map[string]struct {
		headers       map[string]string
		parent, state string
	}{
		"no headers":             {nil, parentOfTest, state},
		"a header":               {map[string]string{"k": "v"}, parentOfTest, state},
		"a trace of its own":     {map[string]string{"traceparent": "00-ab-cd-01"}, "00-ab-cd-01", ""},
		"a state of its own":     {map[string]string{"tracestate": "k=v"}, "", "k=v"},
		"kept out":               {map[string]string{"traceparent": ""}, "", ""},
		"30 headers":             {many(30, 0), parentOfTest, state},
		"31 headers":             {many(31, 0), parentOfTest, ""},
		"32 headers":             {many(32, 0), "", ""},
		"the largest with both":  {many(1, task.MaxHeaderBytes-1-84), parentOfTest, state},
		"too large for a state":  {many(1, task.MaxHeaderBytes-1-83), parentOfTest, ""},
		"the largest with one":   {many(1, task.MaxHeaderBytes-1-66), parentOfTest, ""},
		"too large for a parent": {many(1, task.MaxHeaderBytes-1-65), "", ""},
		"the largest":            {many(1, task.MaxHeaderBytes-1), "", ""},
	} {
		before := maps.Clone(row.headers)
		r := Request{Topic: orders, ID: name, When: In(time.Hour), Headers: row.headers}
		second := r
		second.ID += " of many"
		_, err := c.Schedule(inSpan(f.t.Context(), t), r)
		check.OK(f.t, err)
		check.OK(f.t, c.ScheduleMany(inSpan(f.t.Context(), t), []Request{second})[0].Err)
		want := map[string]string{}
		maps.Copy(want, row.headers)
		for k, v := range map[string]string{"traceparent": row.parent, "tracestate": row.state} {
			if v != "" {
				want[k] = v
			}
		}
		for _, id := range []string{r.ID, second.ID} {
			s, err := c.Get(f.t.Context(), orders, id)
			check.OK(f.t, err)
			if !maps.Equal(s.Headers, want) {
				t.Errorf("%s: got %.200s, want %.200s", id, fmt.Sprint(s.Headers), fmt.Sprint(want))
			}
		}
		if !maps.Equal(row.headers, before) {
			t.Errorf("%s: the caller's headers were changed", name)
		}
	}
}

// TestWithoutASpanNothingIsAdded, and nothing is allocated. It isn't parallel, because
// other tests would allocate meanwhile.
func TestWithoutASpanNothingIsAdded(t *testing.T) {
	headers := map[string]string{"k": "v"}
	if n := testing.AllocsPerRun(100, func() { _ = withTrace(headers, traceHeaders(t.Context())) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if got := withTrace(headers, traceHeaders(t.Context())); !maps.Equal(got, headers) {
		t.Errorf("got %v", got)
	}
}
