package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/collector"
	"github.com/duefleet/duefleet/test/fleet"
)

// tracedFleet is a fleet whose producer, scanner and consumer export spans to one collector.
type tracedFleet struct {
	*fixture
	collector *collector.Collector
	shop      *sdktrace.TracerProvider // of the application
	client    *producer.Client
}

func newTracedFleet(t *testing.T) *tracedFleet {
	t.Helper()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", fleet.Topic{"shards": 1})})
	f := &tracedFleet{fixture: w, collector: collector.Start(t)}
	w.scannerEnv = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + f.collector.URL, "OTEL_SERVICE_NAME=fleet"}
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(f.collector.URL+"/v1/traces"))
	check.OK(t, err)
	f.shop = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(semconv.ServiceName("shop"))))
	f.client, err = producer.New(producer.Config{Redis: w.redis, Prefix: w.settings.RedisPrefix, TracerProvider: f.shop})
	check.OK(t, err)
	return f
}

// handle handles n tasks, and then stops the consumer.
func (f *tracedFleet) handle(n int) {
	f.t.Helper()
	handled := make(chan string, n)
	c, err := consumer.New(consumer.Config{
		URLs: []string{f.settings.RabbitMQURL}, Queue: "orders.due", Redis: f.redis, Prefix: f.settings.RedisPrefix,
		Log: slog.New(slog.DiscardHandler), TracerProvider: f.shop,
		Handler: func(_ context.Context, d task.Delivery) error { handled <- d.ID; return nil },
	})
	check.OK(f.t, err)
	stop := check.Background(f.t, "the consumer", c.Run)
	defer stop()
	for range n {
		check.Receive(f.t, "a task in the handler", handled)
	}
}

// scheduledEarlier makes a stored task one that was scheduled earlier. The bytes 7 to 12 of
// a record are the time when it was stored, in ms.
func (f *tracedFleet) scheduledEarlier(id string, by time.Duration) {
	f.t.Helper()
	key := f.settings.RedisPrefix + ":task:{orders:0}"
	raw, err := f.redis.HGet(f.t.Context(), key, id).Bytes()
	check.OK(f.t, err)
	var ms int64
	for _, b := range raw[7:13] {
		ms = ms<<8 + int64(b)
	}
	ms -= by.Milliseconds()
	for at := 12; at >= 7; at-- {
		raw[at] = byte(ms)
		ms >>= 8
	}
	check.OK(f.t, f.redis.HSet(f.t.Context(), key, id, raw).Err())
}

// spansOf returns the spans of a task by operation.
func (f *tracedFleet) spansOf(id string) map[string]collector.Span {
	f.t.Helper()
	all := map[string]collector.Span{}
	for _, s := range f.collector.Spans() {
		if s.Attributes["messaging.message.id"] == id {
			all[s.Attributes["messaging.operation.name"]] = s
		}
	}
	for _, name := range []string{"schedule", "claim", "publish", "process"} {
		if s, there := all[name]; !there || s.GetName() != name+" orders" {
			f.t.Fatalf("%s: no span %s; all spans: %v", id, name, f.collector.Spans())
		}
	}
	return all
}

// TestSpansReachACollector: the application and the scanner, which is a process of its own,
// export the spans of two tasks. A task that is due soon has one trace. A task that is due
// late has a trace for its claim and its publishing, and one for its handler. Both link to
// the span that scheduled it.
func TestSpansReachACollector(t *testing.T) {
	t.Parallel()
	f := newTracedFleet(t)
	f.pause(true)
	f.start(1)
	ctx, request := f.shop.Tracer("shop").Start(t.Context(), "request")
	for _, id := range []string{"soon", "late"} {
		_, err := f.client.Schedule(ctx, producer.Request{Topic: "orders", ID: id, When: producer.Now()})
		check.OK(t, err)
	}
	request.End()
	f.scheduledEarlier("late", 2*time.Minute)
	f.pause(false)
	f.handle(2)
	f.stop()
	check.OK(t, f.shop.Shutdown(check.Context(t)))

	soon, late := f.spansOf("soon"), f.spansOf("late")
	call := request.SpanContext()
	for _, s := range []map[string]collector.Span{soon, late} {
		if collector.ID(s["schedule"].GetParentSpanId()) != call.SpanID().String() {
			t.Error("the schedule span isn't a child of the caller's span")
		}
		if collector.ID(s["publish"].GetParentSpanId()) != collector.ID(s["claim"].GetSpanId()) {
			t.Error("the publish span isn't a child of the claim span")
		}
		a := s["publish"].Attributes
		if a["duefleet.outcome"] != "confirmed" || a["messaging.destination.partition.id"] != "0" {
			t.Errorf("the publish span has %v", a)
		}
		if a := s["process"].Attributes; a["duefleet.outcome"] != "done" {
			t.Errorf("the process span has %v", a)
		}
		services := map[string]string{"schedule": "shop", "claim": "fleet", "publish": "fleet", "process": "shop"}
		for name, service := range services {
			if got := s[name].Resource["service.name"]; got != service {
				t.Errorf("%s is a span of service %q", name, got)
			}
		}
	}
	for _, name := range []string{"claim", "process"} {
		s, scheduled := soon[name], collector.ID(soon["schedule"].GetSpanId())
		if collector.ID(s.GetParentSpanId()) != scheduled || len(s.GetLinks()) > 0 {
			t.Errorf("soon: the %s span isn't a child of the schedule span", name)
		}
		s, scheduled = late[name], collector.ID(late["schedule"].GetSpanId())
		if len(s.GetParentSpanId()) > 0 || collector.ID(s.GetTraceId()) == call.TraceID().String() {
			t.Errorf("late: the %s span doesn't begin a trace", name)
		}
		if links := s.GetLinks(); len(links) != 1 || collector.ID(links[0].GetSpanId()) != scheduled {
			t.Errorf("late: the %s span has links %v", name, links)
		}
	}
}

// TestACollectorThatHangsDelaysNoDelivery: all tasks arrive and the scanner stops, while the
// collector answers no export. The scanner's log has one line about that.
func TestACollectorThatHangsDelaysNoDelivery(t *testing.T) {
	t.Parallel()
	const tasks = 5000
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	c := collector.Start(t)
	c.Hang()
	w.scannerEnv = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_EXPORTER_OTLP_TIMEOUT=50",
		"OTEL_BSP_EXPORT_TIMEOUT=50", "OTEL_BSP_SCHEDULE_DELAY=1"}
	w.start(1)
	w.consume("orders.due")
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	}))
	due := time.Now()
	for n := range 10 {
		check.OK(t, w.recorder.Schedule(ctx, orders("orders", fmt.Sprint("o", n, "-"), tasks/10, due, time.Second, 100)...))
	}
	log := w.scanners[0].Log()
	w.awaitCount(tasks)
	check.Until(t, "several exports", rarely(func() bool { return c.Exports() > 3 }))
	if err := w.finish().Err(); err != nil {
		t.Error(err)
	}
	if n := len(c.Spans()); n > 0 {
		t.Errorf("the collector took %d spans", n)
	}
	text, err := os.ReadFile(log)
	check.OK(t, err)
	if n := strings.Count(string(text), "spans can't be exported"); n != 1 {
		t.Errorf("%d lines about the collector:\n%s", n, text)
	}
}
