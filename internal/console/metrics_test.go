package console

import (
	"net/http"
	"net/url"
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// gathered returns the values of all series of a registry. A histogram's value is its count.
func gathered(t *testing.T, from *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	check.OK(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if f.GetType() == dto.MetricType_HISTOGRAM {
				all[name] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return all
}

// TestTheConsolesMetrics: the console counts requests, streams, readings and actions. It
// exports exactly the metrics in docs/console.md.
func TestTheConsolesMetrics(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	r := fixture.At(t, server.Addr(), "p")
	r.Serve(t, 1)
	registry := prometheus.NewRegistry()
	s := serve(t, r.Store, Config{Settings: settings(), Registerer: registry})
	for range 2 {
		s.ask(http.MethodGet, "/topic/orders", nil)
	}
	_, page, _ := s.ask(http.MethodGet, "/", nil)
	s.ask(http.MethodGet, regexp.MustCompile(`/assets/[^"]+\.css`).FindString(page), nil)
	s.ask(http.MethodGet, "/weak.php", nil)
	s.ask(http.MethodGet, "/fleet", nil, "Host", "evil.example")
	s.ask(http.MethodPost, "/topic/orders/pause", url.Values{"reason": {"a test"}})
	lines := s.events(t.Context(), "/stream/")
	check.Receive(t, "an event", lines)
	got := gathered(t, registry)
	for series, want := range map[string]float64{
		"duefleet_console_requests_total code=200 route=GET /topic/{topic}":        2,
		"duefleet_console_requests_total code=200 route=GET /assets":               1,
		"duefleet_console_requests_total code=404 route=none":                      1,
		"duefleet_console_requests_total code=421 route=GET /fleet":                1,
		"duefleet_console_requests_total code=303 route=POST /topic/{topic}/pause": 1,
		"duefleet_console_streams":                                                 1,
		"duefleet_console_actions_total outcome=done verb=topic pause":             1,
	} {
		check.Equal(t, series, got[series], want)
	}
	for _, reading := range []string{"fleet", "topic"} {
		if got["duefleet_console_reading_seconds reading="+reading] < 1 {
			t.Errorf("no reading %s is counted in %v", reading, got)
		}
	}
	check.OK(t, server.Kill())
	s.ask(http.MethodPost, "/topic/orders/resume", url.Values{})
	check.Until(t, "a reading to fail", func() bool {
		got = gathered(t, registry)
		return got["duefleet_console_reading_errors_total reading=fleet"] > 0
	})
	documented(t, got)
}

// documented checks that the page names exactly the metrics of series.
func documented(t *testing.T, series map[string]float64) {
	t.Helper()
	page, err := os.ReadFile("../../docs/console.md")
	check.OK(t, err)
	want, is := map[string]bool{}, map[string]bool{}
	for _, name := range regexp.MustCompile(`\bduefleet_console_[a-z_]+`).FindAllString(string(page), -1) {
		want[name] = true
	}
	for name := range series {
		is[regexp.MustCompile(`^\S+`).FindString(name)] = true
	}
	for name := range want {
		if !is[name] {
			t.Errorf("docs/console.md names %s, which the console doesn't export", name)
		}
	}
	for name := range is {
		if !want[name] {
			t.Errorf("docs/console.md doesn't name %s", name)
		}
	}
}
