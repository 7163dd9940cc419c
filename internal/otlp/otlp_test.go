package otlp

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/collector"
)

func TestMain(m *testing.M) { os.Exit(check.Leaks(m)) }

const (
	dropping = "spans can't be exported and are dropped"
	back     = "spans are exported again"
)

// begin returns a provider with these variables. Tests that call it aren't parallel,
// because the environment belongs to the process.
func begin(t *testing.T, env map[string]string) (*Provider, *check.Log) {
	t.Helper()
	for key, value := range env {
		t.Setenv(key, value)
	}
	log := &check.Log{}
	p, err := New(t.Context(), Process{"duefleet-scanner", "1.2.3", "host-1"}, slog.New(slog.NewTextHandler(log, nil)))
	check.OK(t, err)
	if p == nil {
		t.Fatal("tracing is off")
	}
	t.Cleanup(func() { p.Stop(context.Background()) })
	return p, log
}

// span makes one span.
func (p *Provider) span(ctx context.Context, name string) {
	_, s := p.Tracer("test").Start(ctx, name)
	s.End()
}

func TestTracingIsOffUnlessTheEnvironmentTurnsItOn(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"
	for name, row := range map[string]struct {
		env  string
		on   bool
		fail string
	}{
		"nothing":          {"", false, ""},
		"an endpoint":      {endpoint, true, ""},
		"one for traces":   {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1/v1/traces", true, ""},
		"one for metrics":  {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://127.0.0.1:1", false, ""},
		"an exporter":      {"OTEL_TRACES_EXPORTER=otlp", true, ""},
		"grpc":             {"OTEL_EXPORTER_OTLP_PROTOCOL=grpc " + endpoint, true, ""},
		"no exporter":      {"OTEL_TRACES_EXPORTER=none " + endpoint, false, ""},
		"disabled":         {"OTEL_SDK_DISABLED=True " + endpoint, false, ""},
		"not disabled":     {"OTEL_SDK_DISABLED=1 " + endpoint, true, ""},
		"another exporter": {"OTEL_TRACES_EXPORTER=console", false, "OTEL_TRACES_EXPORTER"},
		"another protocol": {"OTEL_EXPORTER_OTLP_PROTOCOL=http/json " + endpoint, false, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		"other for traces": {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=x " + endpoint, false, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, pair := range strings.Fields(row.env) {
				key, value, _ := strings.Cut(pair, "=")
				t.Setenv(key, value)
			}
			p, err := New(t.Context(), Process{}, slog.New(slog.DiscardHandler))
			if p != nil {
				p.Stop(t.Context())
			}
			if p != nil != row.on {
				t.Errorf("on: %v", p != nil)
			}
			if row.fail == "" {
				check.OK(t, err)
			} else if err == nil || !strings.HasPrefix(err.Error(), row.fail+" must be") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestSpansReachACollector by both protocols, before Stop returns, with what the
// environment says about the process.
func TestSpansReachACollector(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			c := collector.Start(t)
			url := map[string]string{"http/protobuf": c.URL, "grpc": c.GRPC}[protocol]
			p, log := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
				"OTEL_SERVICE_NAME": "orders-scanner", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test"})
			p.span(t.Context(), "one")
			p.Stop(t.Context())
			spans := c.Spans()
			if len(spans) != 1 || spans[0].GetName() != "one" {
				t.Fatalf("got %v; log %s", spans, log.String())
			}
			for key, want := range map[string]string{"service.name": "orders-scanner", "service.version": "1.2.3",
				"service.instance.id": "host-1", "deployment.environment.name": "test", "telemetry.sdk.language": "go"} {
				if got := spans[0].Resource[key]; got != want {
					t.Errorf("%s: got %q, want %q", key, got, want)
				}
			}
		})
	}
}

// TestTheSamplerComesFromTheEnvironment.
func TestTheSamplerComesFromTheEnvironment(t *testing.T) {
	c := collector.Start(t)
	p, _ := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_TRACES_SAMPLER": "always_off"})
	p.span(t.Context(), "one")
	p.Stop(t.Context())
	if n := len(c.Spans()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

// TestAnOutageIsLoggedOnce, and so is its end.
func TestAnOutageIsLoggedOnce(t *testing.T) {
	c := collector.Start(t)
	p, log := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_BSP_SCHEDULE_DELAY": "1"})
	for outage := range 2 {
		c.Refuse(true)
		for n := c.Exports(); c.Exports() < n+5; {
			before := c.Exports()
			p.span(t.Context(), "lost")
			check.Until(t, "an export", func() bool { return c.Exports() > before })
		}
		c.Refuse(false)
		p.span(t.Context(), "kept")
		check.Until(t, "the end of the outage in the log", func() bool { return len(log.Lines(back)) == outage+1 })
		if n := len(log.Lines(dropping)); n != outage+1 {
			t.Errorf("%d lines about %d outages", n, outage+1)
		}
	}
}

// TestACollectorThatIsAwayHoldsNothingUp: spans are dropped, and Stop returns.
func TestACollectorThatIsAwayHoldsNothingUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	check.OK(t, listener.Close()) // nothing listens there
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			p, log := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + listener.Addr().String(),
				"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_BSP_EXPORT_TIMEOUT": "1000"})
			overfill(t, p)
			stopsSoon(t, p)
			check.Until(t, "the end of the export", func() bool { return len(log.Lines(dropping)) == 1 })
		})
	}
}

// TestACollectorThatHangsHoldsNothingUp: spans are dropped, and Stop returns, while an
// export waits for its answer.
func TestACollectorThatHangsHoldsNothingUp(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			c := collector.Start(t)
			c.Hang()
			url := map[string]string{"http/protobuf": c.URL, "grpc": c.GRPC}[protocol]
			p, log := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
				"OTEL_BSP_EXPORT_TIMEOUT": "1000"})
			overfill(t, p)
			check.Until(t, "an export", func() bool { return c.Exports() > 0 })
			overfill(t, p)
			if len(c.Spans()) > 0 {
				t.Fatal("the collector answers")
			}
			stopsSoon(t, p)
			check.Until(t, "the lost spans in the log", func() bool { return len(log.Lines("last spans not exported")) == 1 })
		})
	}
}

// overfill makes more spans than the queue of the processor holds, which are 2048. It
// returns although none can be exported.
func overfill(t *testing.T, p *Provider) {
	t.Helper()
	for range 5000 {
		p.span(t.Context(), "lost")
	}
}

// stopsSoon checks that Stop keeps its limit. A busy machine may need longer.
func stopsSoon(t *testing.T, p *Provider) {
	t.Helper()
	began := time.Now()
	p.Stop(t.Context())
	if took := time.Since(began); took > 4*flushLimit {
		t.Errorf("stopping took %s", took)
	}
}
