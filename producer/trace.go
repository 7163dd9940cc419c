package producer

import (
	"context"
	"maps"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/task"
)

// The headers of W3C Trace Context (https://www.w3.org/TR/trace-context/).
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

// traceHeaders returns the trace headers for ctx, or nil if it carries no trace.
func traceHeaders(ctx context.Context) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	return headers
}

// WithTrace returns the request with the trace headers for ctx, as Schedule stores it. It is
// for programs that keep the request and schedule it later, such as package outbox. A request
// with AMQP is returned unchanged.
func (r Request) WithTrace(ctx context.Context) Request {
	if r.AMQP != nil {
		return r
	}
	r.Headers = withTrace(r.Headers, traceHeaders(ctx))
	return r
}

// withTrace returns headers with the trace headers in named added. It returns headers
// unchanged if they name a trace already, or if traceparent exceeds the limits. If only
// tracestate exceeds them, that one is left out.
func withTrace(headers, named map[string]string) map[string]string {
	if len(named) == 0 {
		return headers
	}
	_, parent := headers[traceParent]
	_, state := headers[traceState]
	if parent || state {
		return headers
	}
	both := make(map[string]string, len(headers)+len(named))
	maps.Copy(both, headers)
	maps.Copy(both, named)
	if task.CheckHeaders(both) == nil {
		return both
	}
	delete(both, traceState)
	if task.CheckHeaders(both) == nil {
		return both
	}
	return headers
}
