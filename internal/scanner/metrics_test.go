package scanner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
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
	"duefleet_shard_errors_total COUNTER shard,topic",
	"duefleet_topic_blocked GAUGE reason,topic",
	"duefleet_unreadable_tasks GAUGE topic",
	"duefleet_workers GAUGE topic",
}

func newMetrics(t *testing.T) (*prometheus.Registry, *Metrics) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	m, err := NewMetrics(reg, config.Admin{ShardSeries: 4}, telemetry.Build{})
	check.OK(t, err)
	return reg, m
}

func TestEveryNameOfTheContractIsExported(t *testing.T) {
	t.Parallel()
	var got []string
	synctest.Test(t, func(t *testing.T) { // on a slow machine a real scrape drops series
		reg, m := newMetrics(t)
		shards, err := telemetry.NewShardCollector(telemetry.ShardCollectorConfig{
			Stats: func(context.Context) ([]telemetry.ShardStat, error) {
				return []telemetry.ShardStat{{Topic: "orders", Shard: 3}}, nil
			},
			Errors: m.errors, Series: m.series, Log: slog.New(slog.DiscardHandler),
		})
		check.OK(t, err)
		check.OK(t, reg.Register(shards))
		orders := m.topic("orders")
		orders.placed(1)
		orders.intake.Tasks.WithLabelValues("move").Inc()
		orders.intake.Refused.WithLabelValues("id").Inc()
		m.documents.ConsulUp.Set(true)
		m.checks.RedisUnsafe.Set(false, "eviction")
		for _, g := range []*prometheus.GaugeVec{m.checks.ClockOffset, m.checks.MemoryUsed, m.checks.MemoryMax} {
			g.WithLabelValues().Set(1)
		}
		check.OK(t, telemetry.AddCertificate(reg, "redis", "ca.pem", time.Now))
		got, _ = check.Metrics(t, reg)
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
	orders := m.topic("orders")
	for _, reason := range []string{"not_found", "redis", "strange", ""} {
		orders.setBlocked(reason)
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
	m.topic("orders")
	m.errors.Count("claim")
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
	orders := m.topic("orders")
	m.topic("mail").forwarded(time.Second)
	for range 2 {
		orders.forwarded(3 * time.Millisecond)
	}
	orders.Redelivered.Inc()
	orders.Returned.Inc()
	orders.Returned.Inc()
	orders.Nacked.Inc()
	orders.Overdue.Inc()
	orders.Parked.Add(4)
	orders.settled.Released.Add(5)
	orders.tick(true)
	orders.tick(false)
	orders.Claim.Observe(.25)
	orders.Confirm.Observe(.5)
	orders.moves.Shards.Set(8)
	orders.moves.Epoch.Set(11)
	orders.moves.Migrating.Set(true)
	orders.moves.Misplaced.Set(70)
	orders.moves.MoveRate.Set(35)
	orders.moves.MoveLeft.Set(2)
	orders.moves.Orphans.Set(9)
	orders.setInflight(9, 900)
	orders.setInflight(7, 700)
	orders.setRetrying(12, "overdue")
	orders.Paused.Set(true)
	orders.Unreadable.Set(8)
	orders.Workers.Add(3)
	m.RabbitMQConnected.Set(true)
	m.RabbitMQBlocked.Set(true)
	m.RabbitMQBlocked.Set(false)
	m.RedisUp.Set(true)
	m.documents.ConsulUp.Set(true)
	m.documents.Applied.Set(42)
	m.documents.SetHash(7<<11 + 1)
	m.documents.Refused.Inc()
	m.errors.Count("claim")
	m.errors.Count("claim")
	m.LiveScanners.Set(6)

	check.Series(t, reg, map[string]float64{
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
	m.topic("orders").forwarded(-time.Second)
	check.Series(t, reg, map[string]float64{
		`forwarded_total{topic=orders}`:        1,
		`early_total{topic=orders}`:            1,
		`lateness_seconds_count{topic=orders}`: 1,
		`lateness_seconds_sum{topic=orders}`:   0,
	})
}

func TestConsulIsAbsentUntilItIsSet(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t)
	_, before := check.Metrics(t, reg)
	if _, there := before["consul_up{}"]; there {
		t.Error("consul_up is exported though Consul was never mentioned")
	}
	m.documents.ConsulUp.Set(false)
	check.Series(t, reg, map[string]float64{"consul_up{}": 0})
}

// TestShardsOfALargeTopicAreOneSeries: a topic with more shards than have series of their own.
func TestShardsOfALargeTopicAreOneSeries(t *testing.T) {
	t.Parallel()
	reg, m := newMetrics(t) // has series for four shards
	small, large := m.topic("small"), m.topic("large")
	small.placed(4)
	large.placed(5)
	small.shardError(3)
	small.shardError(100) // as happens while M becomes less
	large.shardError(0)
	large.shardError(4)
	check.Series(t, reg, map[string]float64{
		`shard_errors_total{shard=0,topic=small}`:   0,
		`shard_errors_total{shard=3,topic=small}`:   1,
		`shard_errors_total{shard=all,topic=small}`: 1,
		`shard_errors_total{shard=all,topic=large}`: 2,
	})
	_, all := check.Metrics(t, reg)
	if _, own := all[`shard_errors_total{shard=4,topic=large}`]; own {
		t.Error("a shard of a large topic has a series of its own")
	}
}

// TestATopicThatCannotBeReadHidesNoOther: Redis answers for all topics but one.
func TestATopicThatCannotBeReadHidesNoOther(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"a": declaring("a"), "b": declaring("b"), "c": declaring("c")}, nil)
	l.start()
	reg := l.cfg.Registry
	shown := func() (topics string) {
		_, series := check.Metrics(t, reg)
		for _, topic := range []string{"a", "b", "c"} {
			if _, there := series["pending_tasks{shard=0,topic="+topic+"}"]; there {
				topics += topic
			}
		}
		return topics
	}
	check.Until(t, "the shards of all topics", func() bool { return shown() == "abc" })
	faults.Around(l.rdb, func(ctx context.Context, r faults.Request) error {
		var lost, others []redis.Cmder
		for _, cmd := range r.Commands {
			if strings.Contains(fmt.Sprint(cmd.Args()...), ":{b:") {
				lost = append(lost, cmd)
			} else {
				others = append(others, cmd)
			}
		}
		var err error
		if r.Commands = others; len(others) > 0 {
			err = r.Send(ctx)
		}
		for _, cmd := range lost {
			cmd.SetErr(faults.ErrLost)
			err = errors.Join(err, faults.ErrLost)
		}
		return err
	})
	check.Until(t, "the shards of the topics that Redis answers for", func() bool { return shown() == "ac" })
	if len(l.said.Lines("shard statistics incomplete")) == 0 {
		t.Error("nothing in the log says so")
	}
	if _, series := check.Metrics(t, reg); series["errors_total{operation=shard_stats}"] == 0 {
		t.Error("no error of shard_stats is counted")
	}
}
