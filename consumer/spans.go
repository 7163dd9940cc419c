package consumer

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/internal/tracing"
	"github.com/duefleet/duefleet/task"
)

// startProcess returns the context of a handler. It continues the trace of the task, or
// carries the span of the handler, which is nil without Config.TracerProvider.
func (c *Consumer) startProcess(work context.Context, t *task.Task) (context.Context, trace.Span) {
	ctx := tracing.Extract(work, t)
	if c.tracer == nil {
		return ctx, nil
	}
	return tracing.Process.Start(ctx, c.tracer, t.Topic, tracing.Delivered(t), tracing.After(ctx, t)...)
}

// endProcess ends the span of a handler. cause is why the task failed; nil if it didn't. A
// task that the handler postponed didn't fail.
func endProcess(span trace.Span, became outcome, cause error) {
	if span == nil {
		return
	}
	span.SetAttributes(tracing.Outcome.String(string(became)))
	if cause != nil && became != postponed && span.IsRecording() {
		tracing.Fail(span, string(became), cause.Error())
	}
	span.End()
}
