package producer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestCallsAreCountedByVerbAndResult for two clients that share a registerer.
func TestCallsAreCountedByVerbAndResult(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	registry := prometheus.NewRegistry()
	measured := func(cfg Config) *Client {
		cfg.Prefix, cfg.Registerer = f.prefix, registry
		c, err := New(cfg)
		check.OK(f.t, err)
		return c
	}
	c, other := measured(Config{Redis: f.rdb}), measured(Config{Redis: f.rdb})
	away := measured(Config{Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, MaxRetries: -1}})
	t.Cleanup(func() { _ = away.Close() })
	ctx, soon := f.t.Context(), In(time.Hour)
	schedule := func(c *Client, r Request) error { _, err := c.Schedule(ctx, r); return err }
	check.OK(f.t, schedule(c, request("a", soon)))
	check.OK(f.t, schedule(other, request("b", soon)))
	absent := request("a", soon)
	absent.IfAbsent = true
	is(t, schedule(c, absent), task.ErrExists)
	is(t, schedule(c, Request{Topic: orders, When: soon}), task.ErrInvalid)
	is(t, schedule(c, Request{Topic: "nobodys", ID: "a", When: soon}), task.ErrUnknownTopic)
	is(t, schedule(away, request("a", soon)), task.ErrUnavailable)
	is(t, c.Cancel(ctx, orders, "none"), task.ErrNotFound)
	is(t, c.Cancel(ctx, orders, ""), task.ErrInvalid)
	_, err := c.Reschedule(ctx, orders, "a", soon)
	check.OK(f.t, err)
	_, err = c.Reschedule(ctx, orders, "a", When{})
	is(t, err, task.ErrInvalid)
	_, err = c.Get(ctx, orders, "a")
	check.OK(f.t, err)
	_, err = c.Get(ctx, orders, "none")
	is(t, err, task.ErrNotFound)
	c.ScheduleMany(ctx, []Request{request("a", soon), request("b", soon)})
	c.ScheduleMany(ctx, []Request{request("a", soon), request("", soon), absent, request("c", soon)})
	away.ScheduleMany(ctx, []Request{request("a", soon)})
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP duefleet_producer_batch_results_total Tasks of ScheduleMany by result.
# TYPE duefleet_producer_batch_results_total counter
duefleet_producer_batch_results_total{result="exists"} 1
duefleet_producer_batch_results_total{result="invalid"} 1
duefleet_producer_batch_results_total{result="ok"} 4
duefleet_producer_batch_results_total{result="unavailable"} 1
# HELP duefleet_producer_calls_total Calls by verb and result.
# TYPE duefleet_producer_calls_total counter
duefleet_producer_calls_total{result="exists",verb="schedule"} 1
duefleet_producer_calls_total{result="invalid",verb="cancel"} 1
duefleet_producer_calls_total{result="invalid",verb="reschedule"} 1
duefleet_producer_calls_total{result="invalid",verb="schedule"} 1
duefleet_producer_calls_total{result="invalid",verb="schedule_many"} 1
duefleet_producer_calls_total{result="not_found",verb="cancel"} 1
duefleet_producer_calls_total{result="not_found",verb="get"} 1
duefleet_producer_calls_total{result="ok",verb="get"} 1
duefleet_producer_calls_total{result="ok",verb="reschedule"} 1
duefleet_producer_calls_total{result="ok",verb="schedule"} 2
duefleet_producer_calls_total{result="ok",verb="schedule_many"} 1
duefleet_producer_calls_total{result="unavailable",verb="schedule"} 1
duefleet_producer_calls_total{result="unavailable",verb="schedule_many"} 1
duefleet_producer_calls_total{result="unknown_topic",verb="schedule"} 1
`), prefix+"calls_total", prefix+"batch_results_total"); err != nil {
		t.Error(err)
	}
	measuredTimes(t, registry)
}

// measuredTimes checks the histograms of the calls above.
func measuredTimes(t *testing.T, registry *prometheus.Registry) {
	t.Helper()
	families, err := registry.Gather()
	check.OK(t, err)
	got := map[string]string{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				name := strings.TrimPrefix(family.GetName(), prefix)
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = fmt.Sprint(h.GetSampleCount())
				if name == "batch_tasks" {
					got[name] += fmt.Sprint(" of ", h.GetSampleSum())
				} else if h.GetSampleSum() <= 0 {
					t.Errorf("%s took no time", name)
				}
			}
		}
	}
	want := map[string]string{
		"call_seconds schedule": "6", "call_seconds schedule_many": "3", "call_seconds cancel": "2",
		"call_seconds reschedule": "2", "call_seconds get": "2", "batch_tasks": "3 of 7",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestEveryKindOfErrorIsAResult, also an error of several kinds.
func TestEveryKindOfErrorIsAResult(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"ok": nil, "not_found": task.ErrNotFound, "exists": named("t", "i", task.ErrExists),
		"invalid":     &task.RuleError{Field: "id"},
		"unavailable": fmt.Errorf("%w: %w", task.ErrUnavailable, context.Canceled),
		"uncertain":   fmt.Errorf("%w: %w", task.ErrUncertain, task.ErrUnavailable),
		"replicas":    task.ErrReplicas, "full": task.ErrRedisFull, "unknown_topic": task.ErrUnknownTopic,
		"error": errors.New("WRONGTYPE"),
	} {
		if got := resultOf(err); got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
}

// TestTheMetricsAreDocumented: docs/alerts.md names exactly these metrics, with their
// labels.
func TestTheMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	m, err := newMetrics(prometheus.NewRegistry())
	check.OK(t, err)
	page, err := os.ReadFile("../docs/alerts.md")
	check.OK(t, err)
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `"+prefix+"([^`]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = true
	}
	described := make(chan *prometheus.Desc, 10)
	for _, c := range []prometheus.Collector{m.calls, m.seconds, m.batch, m.results} {
		c.Describe(described)
	}
	close(described)
	parts := regexp.MustCompile(`fqName: "` + prefix + `(\w+)".*variableLabels: (\{.*?\})`)
	for d := range described {
		match := parts.FindStringSubmatch(d.String())
		if match == nil {
			t.Fatalf("can't read %s", d)
		}
		name := match[1] + strings.TrimSuffix(match[2], "{}")
		if !documented[name] {
			t.Errorf("docs/alerts.md lacks %s", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("docs/alerts.md has %s, and there is no such metric", name)
	}
}
