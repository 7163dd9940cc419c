package telemetry

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
)

func TestMain(m *testing.M) { os.Exit(check.Leaks(m)) }

func TestReadyFollowsTheRequiredChecks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		redis, consul bool
		status        int
		text          string
	}{
		{"all well", true, true, 200, "ready\nredis: ok: pong\nconsul: ok\n"},
		{"optional down", true, false, 200, "ready\nredis: ok: pong\nconsul: down (optional): no leader\n"},
		{"required down", false, true, 503, "not ready\nredis: down (required): EOF twice\nconsul: ok\n"},
		{"both down", false, false, 503, "not ready\nredis: down (required): EOF twice\nconsul: down (optional): no " +
			"leader\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, ServerConfig{Checks: []Check{
					{Name: "redis", Required: true, Probe: answer(c.redis, "pong", "EOF\n  twice")},
					{Name: "consul", Probe: answer(c.consul, "", "no leader")},
				}})
				if status, body, _ := ask(t, s, "/readyz", ""); status != c.status || body != c.text {
					t.Errorf("got %d %q, want %d %q", status, body, c.status, c.text)
				}
				for _, asked := range [][2]string{{"/readyz?format=json", ""}, {"/readyz", "application/json"}} {
					status, body, header := ask(t, s, asked[0], asked[1])
					var r readiness
					if err := json.Unmarshal([]byte(body), &r); err != nil {
						t.Fatalf("%q: %v", body, err)
					}
					if status != c.status || r.Ready != (c.status == 200) || len(r.Checks) != 2 ||
						r.Checks[0].Name != "redis" || r.Checks[0].OK != c.redis || !r.Checks[0].Required ||
						r.Checks[1].Name != "consul" || r.Checks[1].OK != c.consul || r.Checks[1].Required ||
						len(r.Checks[0].Problems) == 0 != c.redis {
						t.Errorf("got %d %q", status, body)
					}
					if header.Get("Content-Type") != "application/json" {
						t.Errorf("content type %q", header.Get("Content-Type"))
					}
				}
			})
		})
	}
}

func TestReadyWithoutChecks(t *testing.T) {
	t.Parallel()
	url := startServer(t, ServerConfig{})
	if status, body := fetch(t, url+"/readyz?format=json"); status != 200 || body != `{"ready":true,"checks":[]}`+"\n" {
		t.Errorf("got %d %q", status, body)
	}
}

func TestHangingProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		hang := make(chan struct{})
		s := newServer(t, ServerConfig{Checks: []Check{
			{Name: "redis", Required: true, Probe: func() Result { calls.Add(1); <-hang; return Probed("") }},
			{Name: "rabbitmq", Required: true, Probe: answer(true, "", "")},
		}})
		slow := make(chan string, 1)
		go func() {
			_, body, _ := ask(t, s, "/readyz", "")
			slow <- body
		}()
		synctest.Wait()
		if n := calls.Load(); n != 1 {
			t.Fatalf("the probe was called %d times, want once", n)
		}
		if status, body, _ := ask(t, s, "/livez", ""); status != 200 || body != "ok\n" {
			t.Errorf("livez while a probe hangs: %d %q", status, body)
		}
		want := "not ready\nredis: down (required): no answer within 800ms\nrabbitmq: ok\n"
		if body := <-slow; body != want {
			t.Errorf("got %q, want %q", body, want)
		}
		for range 5 {
			ask(t, s, "/readyz", "")
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("a probe that hangs was called %d times, want once", n)
		}
		close(hang)
		synctest.Wait()
		if status, body, _ := ask(t, s, "/readyz", ""); status != 200 {
			t.Errorf("after the probe came back: %d %q", status, body)
		}
	})
}

func TestMetricsAreServed(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t)
	orders := m.topic("orders")
	orders.Forwarded.Inc()
	orders.Lateness.Observe(.002)
	url := startServer(t, ServerConfig{Registry: reg})
	_, body := fetch(t, url+"/metrics")
	for _, want := range []string{
		`duefleet_forwarded_total{topic="orders"} 1`,
		`duefleet_lateness_seconds_bucket{topic="orders",le="0.001"} 0`,
		`duefleet_lateness_seconds_bucket{topic="orders",le="0.002"} 1`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("%s is missing in\n%s", want, body)
		}
	}
}

func TestOneBrokenCollectorLeavesTheRestOfTheScrape(t *testing.T) {
	t.Parallel()
	reg, _ := newMetrics(t)
	desc := prometheus.NewDesc("broken", "Always fails.", nil, nil)
	reg.MustRegister(prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) {
		ch <- prometheus.NewInvalidMetric(desc, io.ErrUnexpectedEOF)
	}))
	url := startServer(t, ServerConfig{Registry: reg})
	if status, body := fetch(t, url+"/metrics"); status != 200 || !strings.Contains(body, "duefleet_redis_up 0\n") {
		t.Errorf("got %d %q", status, body)
	}
}

func TestWrongServerConfigIsRefused(t *testing.T) {
	t.Parallel()
	probe := answer(true, "", "")
	for want, cfg := range map[string]ServerConfig{
		`admin.listen "9320": must be host:port`: {Listen: "9320"},
		`check "redis": given twice`: {Listen: ":0", Checks: []Check{{Name: "redis", Probe: probe},
			{Name: "redis", Probe: probe}}},
		`check "redis": name and probe are required`: {Listen: ":0", Checks: []Check{{Name: "redis"}}},
		`check "": name and probe are required`:      {Listen: ":0", Checks: []Check{{Probe: probe}}},
	} {
		cfg.Registry, cfg.Log = prometheus.NewRegistry(), slog.Default()
		if _, err := NewServer(cfg); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := NewServer(ServerConfig{Listen: ":0"}); err == nil {
		t.Error("made a server without a registry")
	}
}

func TestPortInUseSaysWhatToDo(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	defer taken.Close()
	addr := taken.Addr().String()
	s := newServer(t, ServerConfig{Listen: addr})
	for _, err := range []error{s.Listen(), s.Run(t.Context())} {
		if err == nil {
			t.Fatal("bound a port that was taken")
		}
		for _, want := range []string{addr, "DUEFLEET_ADMIN_LISTEN", "address already in use"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not mention %s", err, want)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is more than a line", err)
		}
	}
}

func TestStopLetsARequestFinishAndFreesThePort(t *testing.T) {
	t.Parallel()
	scraping, release := make(chan struct{}), make(chan struct{})
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "slow"}, func() float64 {
		close(scraping)
		<-release
		return 7
	}))
	s := newServer(t, ServerConfig{Registry: reg})
	check.OK(t, s.Listen())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()
	body := make(chan string, 1)
	go func() {
		_, b := fetch(t, "http://"+s.Addr()+"/metrics")
		body <- b
	}()
	<-scraping
	stop()
	check.Until(t, "the port to be free", func() bool {
		ln, err := net.Listen("tcp", s.Addr())
		if err == nil {
			_ = ln.Close()
		}
		return err == nil
	})
	close(release)
	if got := <-body; !strings.Contains(got, "slow 7\n") {
		t.Errorf("the request under way got %q", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("run returned %v", err)
	}
}

func answer(ok bool, well, ill string) func() Result {
	return func() Result {
		if ok {
			return Probed(well)
		}
		return Probed(well, problem.New(problem.RedisUnreachable, "", ill))
	}
}

func newServer(t *testing.T, cfg ServerConfig) *Server {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	cfg.Log = slog.New(slog.DiscardHandler)
	s, err := NewServer(cfg)
	check.OK(t, err)
	s.grace = check.Hang
	s.http.ReadHeaderTimeout, s.http.ReadTimeout, s.http.WriteTimeout = check.Hang, check.Hang, check.Hang
	return s
}

// ask calls the server's handler directly, so a request takes no time on synctest's clock.
func ask(t *testing.T, s *Server, target, accept string) (status int, body string, header http.Header) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	req.Header.Set("Accept", accept)
	rec := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(rec, req)
	return rec.Code, rec.Body.String(), rec.Header()
}

// startServer runs a server until the end of the test and returns its URL.
func startServer(t *testing.T, cfg ServerConfig) string {
	t.Helper()
	s := newServer(t, cfg)
	check.OK(t, s.Listen())
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("run returned %v", err)
		}
	})
	return "http://" + s.Addr()
}

func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}
