package scanner

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/tracing"
)

// publishing is the publish span of one task; the zero value is none.
type publishing struct {
	span trace.Span
	now  time.Time
}

// spans makes the claim span and the publish span of a task whose outcome is known. Until
// then only times are kept, which the claim has in any case. So a task without a sampled
// trace costs nothing.
func (i *item) spans(r forward.Result) publishing {
	if i.claim.polling.tracer == nil {
		return publishing{}
	}
	return i.startSpans(r)
}

func (i *item) startSpans(r forward.Result) publishing {
	t, c := i.claim.polling, i.claim
	ctx := tracing.Extract(context.Background(), &i.claimed.Task)
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return publishing{}
	}
	now := time.Now()
	written := c.heard
	if r.Elapsed > 0 {
		written = now.Add(-r.Elapsed)
	}
	attributes := append(tracing.Delivered(&i.claimed.Task), tracing.Shard(strconv.Itoa(c.shard)))
	options := append(tracing.After(ctx, &i.claimed.Task), trace.WithTimestamp(c.asked))
	ctx, claim := tracing.Claim.Start(ctx, t.tracer, t.name, attributes, options...)
	claim.End(trace.WithTimestamp(c.heard))
	_, publish := tracing.Publish.Start(ctx, t.tracer, t.name, attributes, trace.WithTimestamp(written))
	return publishing{publish, now}
}

// end ends the publish span with the outcome.
func (p publishing) end(i *item, r forward.Result, parked bool) {
	if p.span != nil {
		p.endSpan(i, r, parked)
	}
}

func (p publishing) endSpan(i *item, r forward.Result, parked bool) {
	outcome := r.Outcome.String()
	if r.Outcome == forward.Confirmed {
		late := i.claim.clock(p.now).Sub(i.claimed.Due)
		p.span.SetAttributes(tracing.Lateness.Float64(late.Seconds()))
	} else {
		tracing.Fail(p.span, outcome, r.Reason)
	}
	p.span.SetAttributes(tracing.Outcome.String(outcome))
	if parked {
		p.span.AddEvent("parked")
	}
	p.span.End(trace.WithTimestamp(p.now))
}
