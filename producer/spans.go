package producer

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/internal/tracing"
	"github.com/duefleet/duefleet/task"
)

// span is the span of one call; the zero value is none.
type span struct{ span trace.Span }

// startSchedule starts the span of Schedule. The returned context carries it.
func (c *Client) startSchedule(ctx context.Context, r *Request) (context.Context, span) {
	if c.tracer == nil {
		return ctx, span{}
	}
	ctx, s := tracing.Schedule.Start(ctx, c.tracer, r.Topic, []attribute.KeyValue{tracing.ID(r.ID)})
	linkTo(s, r)
	return ctx, span{s}
}

// startMany starts the span of ScheduleMany, which all tasks of the call share. It names a
// topic only if all tasks have the same.
func (c *Client) startMany(ctx context.Context, requests []Request) (context.Context, span) {
	if c.tracer == nil || len(requests) == 0 {
		return ctx, span{}
	}
	topic := requests[0].Topic
	for i := range requests {
		if requests[i].Topic != topic {
			topic = ""
		}
	}
	ctx, s := tracing.Schedule.Start(ctx, c.tracer, topic, []attribute.KeyValue{tracing.Tasks(len(requests))})
	if s.IsRecording() {
		for i := range requests {
			linkTo(s, &requests[i])
		}
	}
	return ctx, span{s}
}

// linkTo links a span to the trace that the request's headers name. Such a task keeps that
// trace.
func linkTo(s trace.Span, r *Request) {
	if r.Headers[traceParent] == "" {
		return
	}
	if named := trace.SpanContextFromContext(tracing.Named(context.Background(), r.Headers)); named.IsValid() {
		s.AddLink(trace.Link{SpanContext: named})
	}
}

// end ends the span of Schedule. A condition that wasn't met is an outcome, not a failure.
func (s span) end(err *error) {
	if s.span == nil {
		return
	}
	if errors.Is(*err, task.ErrExists) || errors.Is(*err, task.ErrNotFound) {
		s.span.SetAttributes(tracing.Outcome.String(resultOf(*err)))
	} else {
		s.failed(*err)
	}
	s.span.End()
}

// endBatch ends the span of ScheduleMany, which has the status of the first failure.
func (s span) endBatch(results []Result) {
	if s.span == nil {
		return
	}
	for i := range results {
		err := results[i].Err
		if err != nil && !errors.Is(err, task.ErrExists) && !errors.Is(err, task.ErrNotFound) {
			s.failed(err)
			break
		}
	}
	s.span.End()
}

// failed gives the span the status of an error.
func (s span) failed(err error) {
	if err == nil || !s.span.IsRecording() {
		return
	}
	tracing.Fail(s.span, resultOf(err), err.Error())
}
