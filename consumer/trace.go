package consumer

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
)

// withTrace returns a context that continues the trace in a task's headers (W3C Trace
// Context).
func withTrace(ctx context.Context, headers map[string]string) context.Context {
	if headers["traceparent"] == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(headers))
}
