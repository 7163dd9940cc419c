package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// metrics holds a scanner's exported metrics by name.
type metrics map[string]*dto.MetricFamily

func readMetrics(t *testing.T, s *fleet.Scanner) metrics {
	t.Helper()
	var body bytes.Buffer
	check.OK(t, s.Get(t.Context(), "/metrics", &body))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(&body)
	check.OK(t, err)
	return families
}

// sum adds the values of all series of a metric. A histogram adds its number of samples.
func (m metrics) sum(name string) float64 {
	total := 0.0
	for _, s := range m[name].GetMetric() {
		total += s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
	}
	return total
}

// labels returns the names of a metric's labels, in exported order.
func (m metrics) labels(name string) string {
	series := m[name].GetMetric()
	if len(series) == 0 {
		return "no series"
	}
	var names []string
	for _, l := range series[0].GetLabel() {
		names = append(names, l.GetName())
	}
	return strings.Join(names, " ")
}

// contractMetrics returns type and labels of the documented metrics, which dashboards
// use.
func contractMetrics() map[string]struct {
	kind   dto.MetricType
	labels string
} {
	type family = struct {
		kind   dto.MetricType
		labels string
	}
	all := map[string]family{}
	add := func(kind dto.MetricType, labels, names string) {
		for _, name := range strings.Fields(names) {
			all["duefleet_"+name] = family{kind, labels}
		}
	}
	add(dto.MetricType_COUNTER, "topic", "forwarded_total redelivered_total returned_total nacked_total parked_total "+
		"released_total ticks_total empty_ticks_total")
	add(dto.MetricType_HISTOGRAM, "topic", "lateness_seconds publish_confirm_seconds claim_seconds")
	add(dto.MetricType_GAUGE, "shard topic", "pending_tasks backlog_tasks leased_tasks parked_tasks oldest_due_seconds")
	add(dto.MetricType_GAUGE, "topic", "shards placement_epoch migrating misplaced_tasks")
	add(dto.MetricType_GAUGE, "", "rabbitmq_connected rabbitmq_blocked redis_up consul_up config_applied_index")
	add(dto.MetricType_COUNTER, "", "config_errors_total")
	return all
}

// TestMetrics: a running scanner exports every documented metric with its type and
// labels, and with the right values.
func TestMetrics(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	w := newConsulSource(t)
	w.set("orders", fleet.DeclaredTopic("orders", nil))
	w.start(1)
	w.consume("orders.due")
	w.send("orders", "o", 100)
	w.arrive("the tasks")
	w.schedule(orders("orders", "later", 30, time.Now().Add(time.Hour), time.Second, 0)...)
	s := w.scanners[0]
	// The last confirm may come after the message. A tick counts when it ends.
	// Connections and shards are checked at intervals.
	var m metrics
	check.Until(w.t, "the numbers of what happened", rarely(func() bool {
		m = readMetrics(t, s)
		return m.sum("duefleet_forwarded_total") == 100 && m.sum("duefleet_pending_tasks") == 30 &&
			m.sum("duefleet_leased_tasks") == 0 &&
			m.sum("duefleet_rabbitmq_connected") == 1 && m.sum("duefleet_redis_up") == 1 && m.sum("duefleet_consul_up") == 1 &&
			m.sum("duefleet_ticks_total") > 0
	}))
	for name, want := range contractMetrics() {
		f := m[name]
		if f == nil || len(f.GetMetric()) == 0 {
			t.Errorf("%s is not exported", name)
			continue
		}
		if f.GetType() != want.kind || m.labels(name) != want.labels {
			t.Errorf("%s is a %s with labels %q, want a %s with labels %q", name, f.GetType(), m.labels(name), want.kind,
				want.labels)
		}
		if f.GetHelp() == "" {
			t.Errorf("%s has no help text", name)
		}
	}
	for name, want := range map[string]float64{
		"lateness_seconds": 100, "publish_confirm_seconds": 100, "returned_total": 0, "parked_total": 0,
		"redelivered_total": 0,
		"shards":            4, "migrating": 0, "misplaced_tasks": 0, "leased_tasks": 0, "backlog_tasks": 0,
		"parked_tasks":       0,
		"rabbitmq_connected": 1, "rabbitmq_blocked": 0, "redis_up": 1, "consul_up": 1, "config_errors_total": 0,
	} {
		if got := m.sum("duefleet_" + name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if m.sum("duefleet_claim_seconds") == 0 {
		t.Error("no claim was measured")
	}
	for _, path := range []string{"/livez", "/readyz"} {
		check.Until(t, path+" to answer 200", rarely(func() bool { return s.Get(t.Context(), path, io.Discard) == nil }))
	}
}

// TestMetricsOfManyTopics: a scanner with more topics than have series of their own shows them
// together. It names the one in trouble.
func TestMetricsOfManyTopics(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{
		"orders": fleet.DeclaredTopic("orders", nil),
		"mails":  fleet.DeclaredTopic("mails", nil),
		"bills":  fleet.DeclaredTopic("bills", fleet.Topic{"paused": true}),
	})
	w.settings.More = map[string]fleet.Topic{"admin": {"topic_series": 2}}
	w.write()
	w.start(1)
	w.consume("orders.due")
	w.schedule(orders("orders", "o", 100, time.Now(), time.Second, 0)...)
	w.arrive("the tasks")
	w.schedule(orders("mails", "later", 30, time.Now().Add(time.Hour), time.Second, 0)...)
	w.schedule(orders("bills", "due", 5, time.Now().Add(-time.Minute), time.Second, 0)...)
	want := map[string]string{
		"forwarded_total": "all=100", "lateness_seconds": "all=100", "pending_tasks": "all=30 bills=5",
		"backlog_tasks": "all=0 bills=5", "paused": "all=0 bills=1", "shards": "all=12", "migrating": "all=0",
	}
	got := map[string]string{}
	check.Until(t, "the numbers of what happened", rarely(func() bool {
		m := readMetrics(t, w.scanners[0])
		for name := range want {
			got[name] = m.byTopic("duefleet_" + name)
		}
		return maps.Equal(got, want)
	}))
}

// byTopic returns the values of a metric by topic, as "all=1 orders=2".
func (m metrics) byTopic(name string) string {
	var all []string
	for _, s := range m[name].GetMetric() {
		for _, l := range s.GetLabel() {
			if l.GetName() == "topic" {
				all = append(all, fmt.Sprintf("%s=%v", l.GetValue(),
					s.GetCounter().GetValue()+s.GetGauge().GetValue()+float64(s.GetHistogram().GetSampleCount())))
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
