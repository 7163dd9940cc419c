// Package otlp exports spans by OTLP. The standard environment variables of OpenTelemetry
// turn it on and configure it; docs/tracing.md lists them.
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/internal/ratelog"
)

// flushLimit is how long Provider.Stop waits for the collector.
const flushLimit = 2 * time.Second

// Process says which process exports spans.
type Process struct {
	// Service is the service.name, unless the environment sets another.
	Service string
	// Version is the service.version; "" means unknown.
	Version string
	// Instance is the service.instance.id.
	Instance string
}

// Provider exports spans.
type Provider struct {
	trace.TracerProvider
	stop func(context.Context) error
	log  *slog.Logger
}

// New returns a provider, or nil if the environment doesn't turn tracing on. It connects at
// the first export. It sets the error handler and the logger of OpenTelemetry for the whole
// process. The error names the variable whose value can't be used.
func New(ctx context.Context, p Process, log *slog.Logger) (*Provider, error) {
	client, err := chooseClient()
	if client == nil || err != nil {
		return nil, err
	}
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	errors := ratelog.New(log, slog.LevelWarn, "opentelemetry reports an error")
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { errors.Log(context.Background(), "error", err) }))
	from, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		semconv.ServiceName(p.Service), semconv.ServiceVersion(p.Version), semconv.ServiceInstanceID(p.Instance),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	exporter := otlptrace.NewUnstarted(client)
	if err := exporter.Start(ctx); err != nil {
		return nil, fmt.Errorf("start the exporter of spans: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(from),
		sdktrace.WithBatcher(&watched{SpanExporter: exporter, log: log}))
	return &Provider{provider, provider.Shutdown, log}, nil
}

// chooseClient returns the client for the protocol that the environment names, or nil if
// tracing is off.
func chooseClient() (otlptrace.Client, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	switch exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return nil, nil
	case "otlp":
	case "":
		if _, set := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"); set == "" {
			return nil, nil
		}
	default:
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER must be otlp or none; got %q", exporter)
	}
	switch name, protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "", "http/protobuf":
		return otlptracehttp.NewClient(), nil
	case "grpc":
		return otlptracegrpc.NewClient(), nil
	default:
		return nil, fmt.Errorf("%s must be http/protobuf or grpc; got %q", name, protocol)
	}
}

// first returns the first variable that is set, and its value.
func first(names ...string) (name, value string) {
	for _, name := range names {
		if value := os.Getenv(name); value != "" {
			return name, value
		}
	}
	return "", ""
}

// Stop exports the spans that have ended. If the collector doesn't take them within 2 s,
// they are lost.
func (p *Provider) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
	defer cancel()
	if err := p.stop(ctx); err != nil {
		p.log.WarnContext(ctx, "last spans not exported", "error", err)
	}
}

// watched is an exporter that logs an outage once, and its end. The processor calls it from
// one goroutine.
type watched struct {
	sdktrace.SpanExporter
	log  *slog.Logger
	away time.Time // since when exports fail; zero if they don't
}

// ExportSpans exports spans, or drops them and returns nil.
func (w *watched) ExportSpans(ctx context.Context, all []sdktrace.ReadOnlySpan) error {
	err := w.SpanExporter.ExportSpans(ctx, all)
	switch {
	case err != nil && w.away.IsZero():
		w.away = time.Now()
		w.log.WarnContext(ctx, "spans can't be exported and are dropped, delivery goes on", "error", err)
	case err == nil && !w.away.IsZero():
		w.log.InfoContext(ctx, "spans are exported again", "outage", time.Since(w.away))
		w.away = time.Time{}
	}
	return nil
}
