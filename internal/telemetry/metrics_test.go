package telemetry

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
)

// contract lists every metric that users depend on: name, type, labels.
var contract = []string{
	"duefleet_backlog_tasks GAUGE shard,topic",
	"duefleet_claim_seconds HISTOGRAM topic",
	"duefleet_config_applied_index GAUGE ",
	"duefleet_config_errors_total COUNTER ",
	"duefleet_consul_up GAUGE ",
	"duefleet_empty_ticks_total COUNTER topic",
	"duefleet_forwarded_total COUNTER topic",
	"duefleet_lateness_seconds HISTOGRAM topic",
	"duefleet_leased_tasks GAUGE shard,topic",
	"duefleet_migrating GAUGE topic",
	"duefleet_misplaced_tasks GAUGE topic",
	"duefleet_nacked_total COUNTER topic",
	"duefleet_oldest_due_seconds GAUGE shard,topic",
	"duefleet_parked_tasks GAUGE shard,topic",
	"duefleet_parked_total COUNTER topic",
	"duefleet_pending_tasks GAUGE shard,topic",
	"duefleet_placement_epoch GAUGE topic",
	"duefleet_publish_confirm_seconds HISTOGRAM topic",
	"duefleet_rabbitmq_blocked GAUGE ",
	"duefleet_rabbitmq_connected GAUGE ",
	"duefleet_redelivered_total COUNTER topic",
	"duefleet_redis_up GAUGE ",
	"duefleet_released_total COUNTER topic",
	"duefleet_returned_total COUNTER topic",
	"duefleet_shards GAUGE topic",
	"duefleet_ticks_total COUNTER topic",
}

// additions lists the metrics beyond the contract.
var additions = []string{
	"duefleet_build_info GAUGE go_version,revision,version",
	"duefleet_certificate_expiry_timestamp_seconds GAUGE file,use",
	"duefleet_config_documents_hash GAUGE ",
	"duefleet_config_errors GAUGE ",
	"duefleet_early_total COUNTER topic",
	"duefleet_errors_total COUNTER operation",
	"duefleet_inflight_bytes GAUGE topic",
	"duefleet_inflight_tasks GAUGE topic",
	"duefleet_intake_refused_total COUNTER reason,topic",
	"duefleet_intake_total COUNTER topic,verb",
	"duefleet_intake_unacked GAUGE topic",
	"duefleet_move_left_seconds GAUGE topic",
	"duefleet_move_rate_tasks_per_second GAUGE topic",
	"duefleet_moved_tasks_total COUNTER topic",
	"duefleet_live_scanners GAUGE ",
	"duefleet_overdue_total COUNTER topic",
	"duefleet_paused GAUGE topic",
	"duefleet_redis_clock_offset_seconds GAUGE ",
	"duefleet_redis_memory_max_bytes GAUGE ",
	"duefleet_redis_memory_used_bytes GAUGE ",
	"duefleet_redis_unsafe GAUGE reason",
	"duefleet_retry_reason GAUGE reason,topic",
	"duefleet_retrying_tasks GAUGE topic",
	"duefleet_orphaned_tasks GAUGE topic",
	"duefleet_topic_blocked GAUGE reason,topic",
	"duefleet_unreadable_tasks GAUGE topic",
	"duefleet_workers GAUGE topic",
}

func TestEveryNameOfTheContractIsExported(t *testing.T) {
	t.Parallel()
	var got []string
	synctest.Test(t, func(t *testing.T) { // on a slow machine a real scrape drops series
		reg, m := newMetrics(t)
		addShards(t, reg, m, func(context.Context) ([]ShardStat, error) {
			return []ShardStat{{Topic: "orders", Shard: 3}}, nil
		})
		orders := m.Topic("orders")
		orders.IntakeTasks.WithLabelValues("move").Inc()
		orders.IntakeRefused.WithLabelValues("id").Inc()
		m.SetConsulUp(true)
		m.SetRedisUnsafe("eviction", false)
		m.SetClockOffset(time.Second)
		m.SetRedisMemory(1, 2)
		m.Error("claim")
		if err := AddCertificate(reg, "redis", "ca.pem", time.Now); err != nil {
			t.Error(err)
		}
		for _, f := range gather(t, reg) {
			got = append(got, f.signature)
		}
	})
	want := slices.Sorted(slices.Values(append(slices.Clone(contract), additions...)))
	if !slices.Equal(got, want) {
		t.Errorf("exported:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestABlockedTopicHasOneReason: the others are 0, and an unknown reason counts as other.
func TestABlockedTopicHasOneReason(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t)
	orders := m.Topic("orders")
	for _, reason := range []string{"not_found", "redis", "strange", ""} {
		orders.SetBlocked(reason)
		want := map[string]string{"not_found": "not_found", "redis": "redis", "strange": "other"}[reason]
		families, err := reg.Gather()
		check.OK(t, err)
		for _, f := range families {
			if f.GetName() != "duefleet_topic_blocked" {
				continue
			}
			if n := len(f.GetMetric()); n != len(orders.Blocked) {
				t.Errorf("%q: %d series", reason, n)
			}
			for _, s := range f.GetMetric() {
				if label := s.GetLabel()[0].GetValue(); (s.GetGauge().GetValue() == 1) != (label == want) {
					t.Errorf("%q: %s is %v", reason, label, s.GetGauge().GetValue())
				}
			}
		}
	}
}

func TestNamesKeepPrometheusConventions(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t)
	m.Topic("orders")
	m.Error("claim")
	families, err := reg.Gather()
	check.OK(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

func TestEachEventCountsInItsOwnMetric(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t)
	orders := m.Topic("orders")
	m.Topic("mail").Forwarded(time.Second)
	for range 2 {
		orders.Forwarded(3 * time.Millisecond)
	}
	orders.Redelivered.Inc()
	orders.Returned.Inc()
	orders.Returned.Inc()
	orders.Nacked.Inc()
	orders.Overdue.Inc()
	orders.Parked.Add(4)
	orders.Released.Add(5)
	orders.Tick(true)
	orders.Tick(false)
	orders.Claim.Observe(.25)
	orders.Confirm.Observe(.5)
	orders.SetPlacement(8, 11, true)
	orders.SetProgress(70, 35, 2*time.Second)
	orders.Orphans.Set(9)
	orders.SetInflight(9, 900)
	orders.SetInflight(7, 700)
	orders.SetRetrying(12, "overdue")
	orders.Paused.Set(true)
	orders.Unreadable.Set(8)
	orders.Workers.Add(3)
	m.RabbitMQConnected.Set(true)
	m.RabbitMQBlocked.Set(true)
	m.RabbitMQBlocked.Set(false)
	m.RedisUp.Set(true)
	m.SetConsulUp(true)
	m.ConfigApplied.Set(42)
	m.SetConfigDocuments(7<<11 + 1)
	m.ConfigRefused.Inc()
	m.Error("claim")
	m.Error("claim")
	m.LiveScanners.Set(6)

	wantValues(t, reg, map[string]float64{
		`forwarded_total{topic=orders}`:               2,
		`forwarded_total{topic=mail}`:                 1,
		`lateness_seconds_count{topic=orders}`:        2,
		`lateness_seconds_sum{topic=orders}`:          .006,
		`early_total{topic=orders}`:                   0,
		`redelivered_total{topic=orders}`:             1,
		`returned_total{topic=orders}`:                2,
		`nacked_total{topic=orders}`:                  1,
		`overdue_total{topic=orders}`:                 1,
		`parked_total{topic=orders}`:                  4,
		`released_total{topic=orders}`:                5,
		`ticks_total{topic=orders}`:                   2,
		`empty_ticks_total{topic=orders}`:             1,
		`claim_seconds_sum{topic=orders}`:             .25,
		`publish_confirm_seconds_sum{topic=orders}`:   .5,
		`publish_confirm_seconds_count{topic=orders}`: 1,
		`shards{topic=orders}`:                        8,
		`placement_epoch{topic=orders}`:               11,
		`migrating{topic=orders}`:                     1,
		`misplaced_tasks{topic=orders}`:               70,
		`orphaned_tasks{topic=orders}`:                9,
		`move_rate_tasks_per_second{topic=orders}`:    35,
		`move_left_seconds{topic=orders}`:             2,
		`inflight_bytes{topic=orders}`:                700,
		`inflight_tasks{topic=orders}`:                7,
		`retrying_tasks{topic=orders}`:                12,
		`retry_reason{reason=overdue,topic=orders}`:   1,
		`retry_reason{reason=returned,topic=orders}`:  0,
		`retry_reason{reason=refused,topic=mail}`:     0,
		`paused{topic=orders}`:                        1,
		`paused{topic=mail}`:                          0,
		`unreadable_tasks{topic=orders}`:              8,
		`workers{topic=orders}`:                       3,
		`rabbitmq_connected{}`:                        1,
		`rabbitmq_blocked{}`:                          0,
		`redis_up{}`:                                  1,
		`consul_up{}`:                                 1,
		`config_applied_index{}`:                      42,
		`config_documents_hash{}`:                     7,
		`config_errors_total{}`:                       1,
		`errors_total{operation=claim}`:               2,
		`live_scanners{}`:                             6,
	})
}

func TestEarlyTaskIsCountedAndLowersNoSum(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t)
	m.Topic("orders").Forwarded(-time.Second)
	wantValues(t, reg, map[string]float64{
		`forwarded_total{topic=orders}`:        1,
		`early_total{topic=orders}`:            1,
		`lateness_seconds_count{topic=orders}`: 1,
		`lateness_seconds_sum{topic=orders}`:   0,
	})
}

func TestConsulIsAbsentUntilItIsSet(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t)
	if _, ok := values(gather(t, reg))["consul_up{}"]; ok {
		t.Error("consul_up is exported though Consul was never mentioned")
	}
	m.SetConsulUp(false)
	wantValues(t, reg, map[string]float64{"consul_up{}": 0})
}

func TestForgottenTopicLeavesNoSeries(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t)
	old := m.Topic("orders")
	old.Forwarded(time.Millisecond)
	m.Topic("mail").Nacked.Inc()
	m.Forget("orders")
	old.Forwarded(time.Millisecond)
	for series := range values(gather(t, reg)) {
		if strings.Contains(series, "topic=orders") {
			t.Errorf("%s is still exported", series)
		}
	}
	m.Topic("orders")
	wantValues(t, reg, map[string]float64{
		`forwarded_total{topic=orders}`: 0,
		`nacked_total{topic=mail}`:      1,
	})
}

func TestTopicsComeAndGoWhileCountingGoesOn(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				m.Topic("orders").Forwarded(time.Millisecond)
				m.Topic("mail").Forwarded(time.Millisecond)
				m.Forget("orders")
			}
		})
	}
	wg.Wait()
	got := values(gather(t, reg))
	if _, ok := got[`forwarded_total{topic=orders}`]; ok || got[`forwarded_total{topic=mail}`] != 800 {
		t.Errorf("orders exported: %t; mail forwarded: %v, want 800", ok, got[`forwarded_total{topic=mail}`])
	}
}

func TestTakenNameRegistersNothing(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "duefleet_workers", Help: "Somebody else's."}))
	if _, err := NewMetrics(reg, 0, Build{}); err == nil {
		t.Fatal("registered over a name that was taken")
	}
	if got := gather(t, reg); len(got) != 1 {
		t.Errorf("exported %v, want the other's gauge alone", got)
	}
}

func newMetrics(t *testing.T) (*prometheus.Registry, *Metrics) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	m, err := NewMetrics(reg, 4, Build{})
	check.OK(t, err)
	return reg, m
}

// family is one metric of a scrape: name, type and labels, and its series.
type family struct {
	signature string
	series    map[string]float64
}

func gather(t *testing.T, reg prometheus.Gatherer) []family {
	t.Helper()
	gathered, err := reg.Gather()
	check.OK(t, err)
	var all []family
	for _, mf := range gathered {
		name := strings.TrimPrefix(mf.GetName(), "duefleet_")
		f := family{series: map[string]float64{}}
		var labels []string
		for _, metric := range mf.GetMetric() {
			labels = labels[:0]
			var pairs []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetName())
				pairs = append(pairs, l.GetName()+"="+l.GetValue())
			}
			key := "{" + strings.Join(pairs, ",") + "}"
			if h := metric.GetHistogram(); h != nil {
				f.series[name+"_count"+key] = float64(h.GetSampleCount())
				f.series[name+"_sum"+key] = h.GetSampleSum()
				continue
			}
			f.series[name+key] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
		f.signature = mf.GetName() + " " + mf.GetType().String() + " " + strings.Join(labels, ",")
		all = append(all, f)
	}
	return all
}

func values(families []family) map[string]float64 {
	all := map[string]float64{}
	for _, f := range families {
		for k, v := range f.series {
			all[k] = v
		}
	}
	return all
}

func wantValues(t *testing.T, reg prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	got := values(gather(t, reg))
	for series, v := range want {
		if g, ok := got[series]; !ok || g != v {
			t.Errorf("%s = %v (exported: %t), want %v", series, g, ok, v)
		}
	}
}

// TestProblemsAreSeriesWhileTheyLast: one for each kind and topic. A problem that is over
// leaves none.
func TestProblemsAreSeriesWhileTheyLast(t *testing.T) {
	t.Parallel()
	reg := NewRegistry()
	third := problem.New(problem.ShardUnserved, "orders", "shard 3")
	third.Shard = "3"
	found := []problem.Problem{
		problem.New(problem.ShardUnserved, "orders", "shard 2"), third,
		problem.New(problem.IntakeStopped, "mails", "no queue"), problem.New(problem.RedisUnreachable, "", "refused"),
	}
	check.OK(t, AddProblems(reg, func() []problem.Problem { return found }))
	wantValues(t, reg, map[string]float64{
		`problem{kind=shard_unserved,topic=orders}`: 1,
		`problem{kind=intake_stopped,topic=mails}`:  1,
		`problem{kind=redis_unreachable,topic=}`:    1,
	})
	found = nil
	for series := range maps.Keys(values(gather(t, reg))) {
		if series[:7] == "problem" {
			t.Errorf("%s is there, and the problem is over", series)
		}
	}
	if AddProblems(reg, func() []problem.Problem { return nil }) == nil {
		t.Error("added twice")
	}
}
