package consumer

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
)

// withTrace continues the trace that a task's headers name (W3C Trace Context):
// what the handler starts belongs to it. A retry carries the headers on.
func withTrace(ctx context.Context, headers map[string]string) context.Context {
	if headers["traceparent"] == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(headers))
}
