// Package tracing has the names and attributes of the OpenTelemetry spans that producer,
// consumer and scanner make. It also decides whether a span is a child of the span that
// scheduled its task, or links to it. docs/tracing.md lists all spans.
package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/task"
)

// LongDelay is the longest time from scheduling to due for which the spans of a delivery
// are children of the span that scheduled the task. After a longer time they begin a trace
// and link to that span.
const LongDelay = time.Minute

// Attributes of duefleet. All others are in the semantic conventions for messaging.
const (
	Due         = attribute.Key("duefleet.due")         // RFC 3339 in UTC, with milliseconds.
	Lateness    = attribute.Key("duefleet.lateness")    // seconds from due to the outcome.
	Attempt     = attribute.Key("duefleet.attempt")     // counts from 1.
	Redelivered = attribute.Key("duefleet.redelivered") // an earlier attempt may have arrived.
	Outcome     = attribute.Key("duefleet.outcome")     // of publishing, or of the delivery.
)

// NewTracer returns a tracer of the provider, or nil if p is nil.
func NewTracer(p trace.TracerProvider) trace.Tracer {
	if p == nil {
		return nil
	}
	return p.Tracer("github.com/duefleet/duefleet", trace.WithSchemaURL(semconv.SchemaURL))
}

// Operation is one kind of span.
type Operation uint8

const (
	// Schedule stores tasks in Redis.
	Schedule Operation = iota
	// Claim leases a due task.
	Claim
	// Publish sends a task to RabbitMQ and waits for the outcome.
	Publish
	// Process is the run of a handler.
	Process
)

// Start starts the span of an operation on a topic, with these attributes and options. Topic
// is "" for a batch of several topics.
func (o Operation) Start(ctx context.Context, t trace.Tracer, topic string, attributes []attribute.KeyValue,
	options ...trace.SpanStartOption) (context.Context, trace.Span) {
	name, of, kind := o.describe()
	all := make([]attribute.KeyValue, 0, len(attributes)+4)
	all = append(all, semconv.MessagingSystemKey.String("duefleet"), semconv.MessagingOperationName(name), of)
	all = append(all, attributes...)
	if topic != "" {
		name += " " + topic
		all = append(all, semconv.MessagingDestinationName(topic))
	}
	return t.Start(ctx, name, append(options, trace.WithSpanKind(kind), trace.WithAttributes(all...))...)
}

func (o Operation) describe() (name string, of attribute.KeyValue, kind trace.SpanKind) {
	switch o {
	case Schedule:
		return "schedule", semconv.MessagingOperationTypeSend, trace.SpanKindProducer
	case Claim:
		return "claim", semconv.MessagingOperationTypeReceive, trace.SpanKindClient
	case Publish:
		// The consumer continues from the schedule span, so this isn't a PRODUCER.
		return "publish", semconv.MessagingOperationTypeSend, trace.SpanKindClient
	default:
		return "process", semconv.MessagingOperationTypeProcess, trace.SpanKindConsumer
	}
}

// ID returns the attribute for a task's ID.
func ID(id string) attribute.KeyValue { return semconv.MessagingMessageID(id) }

// Delivered returns the attributes of a delivery of t.
func Delivered(t *task.Task) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 5) // the scanner adds the shard
	all = append(all, ID(t.ID), Due.String(t.Due.UTC().Format("2006-01-02T15:04:05.000Z")), Attempt.Int(t.Attempt))
	if t.Redelivered {
		all = append(all, Redelivered.Bool(true))
	}
	return all
}

// Fail gives a span the status of an operation that failed, with the kind of the failure.
func Fail(s trace.Span, kind, reason string) {
	s.SetAttributes(semconv.ErrorTypeKey.String(kind))
	s.SetStatus(codes.Error, reason)
}

// Tasks returns the attribute for the number of tasks in a batch.
func Tasks(n int) attribute.KeyValue { return semconv.MessagingBatchMessageCount(n) }

// Shard returns the attribute for the shard of a task.
func Shard(text string) attribute.KeyValue { return semconv.MessagingDestinationPartitionID(text) }

// Extract returns ctx with the span that the headers of t name (W3C Trace Context), or ctx
// if they name none.
func Extract(ctx context.Context, t *task.Task) context.Context {
	headers := t.Headers
	if t.AMQP != nil {
		headers = map[string]string{}
		for _, key := range (propagation.TraceContext{}).Fields() {
			headers[key], _ = t.AMQP.Headers[key].(string)
		}
	}
	return Named(ctx, headers)
}

// Named returns ctx with the span that headers name, or ctx if they name none.
func Named(ctx context.Context, headers map[string]string) context.Context {
	if headers["traceparent"] == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(headers))
}

// After returns the options of the first span of a delivery. ctx is the result of Extract.
// A span after a long delay begins a new trace and links to the span in ctx. A span that
// isn't sampled gets no link, so that the new span isn't sampled either.
func After(ctx context.Context, t *task.Task) []trace.SpanStartOption {
	scheduled := trace.SpanContextFromContext(ctx)
	if !scheduled.IsSampled() || t.Due.Sub(t.Scheduled) <= LongDelay {
		return nil
	}
	return []trace.SpanStartOption{trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: scheduled})}
}
