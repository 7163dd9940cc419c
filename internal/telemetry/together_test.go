package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
)

// crowdTopic has a metric for each way in which topics are one series.
type crowdTopic struct {
	Forwarded   prometheus.Counter  `metric:"forwarded_total" help:"Tasks forwarded."`
	Intake      *Counters           `metric:"intake_total" label:"verb" help:"Messages."`
	ShardErrors *Counters           `metric:"shard_errors_total" label:"shard" help:"Errors."`
	Lateness    prometheus.Observer `metric:"lateness_seconds" buckets:".001 .002" help:"How late."`
	Inflight    prometheus.Gauge    `metric:"inflight_tasks" help:"Tasks."`
	Epoch       prometheus.Gauge    `metric:"placement_epoch" together:"max" help:"Epoch."`
	Migrating   Switch              `metric:"migrating" help:"1 while tasks move."`
	Retrying    prometheus.Gauge    `metric:"retrying_tasks" together:"each" help:"Tasks."`
	Paused      Switch              `metric:"paused" together:"each" help:"1 while paused."`
	Blocked     map[string]Switch   `metric:"topic_blocked" together:"each" label:"reason" values:"redis other" help:"1 while blocked."`
}

// crowd returns the metrics of topics. Up to most of them have series of their own. Topic number n
// has counted n of each.
func crowd(t *testing.T, most int, names ...string) (prometheus.Gatherer, *Set, []*crowdTopic) {
	t.Helper()
	reg, set := prometheus.NewPedanticRegistry(), &Set{MostTopics: most}
	topic := DeclareForTopics[crowdTopic](set)
	check.OK(t, set.Register(reg))
	var topics []*crowdTopic
	for i, name := range names {
		one, n := topic(name), float64(i+1)
		one.Forwarded.Add(n)
		one.Intake.WithLabelValues("move").Add(n)
		one.ShardErrors.WithLabelValues(fmt.Sprint(i)).Add(n)
		one.Lateness.Observe(n)
		one.Inflight.Set(n)
		one.Epoch.Set(n)
		topics = append(topics, one)
	}
	return reg, set, topics
}

// topicsOf returns the topics that a metric shows.
func topicsOf(t *testing.T, reg prometheus.Gatherer, metric string) string {
	t.Helper()
	var names []string
	_, got := check.Metrics(t, reg)
	for series := range got {
		if of, found := strings.CutPrefix(series, metric+"{"); found {
			_, name, _ := strings.Cut(strings.TrimSuffix(of, "}"), "topic=")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestTooManyTopicsAreShownTogether(t *testing.T) {
	t.Parallel()
	reg, set, topics := crowd(t, 2, "a", "b", "c")
	topics[1].Migrating.Set(true)
	check.Series(t, reg, map[string]float64{
		`forwarded_total{topic=all}`:              6,
		`intake_total{topic=all,verb=move}`:       6,
		`shard_errors_total{shard=all,topic=all}`: 6,
		`lateness_seconds_count{topic=all}`:       3,
		`lateness_seconds_sum{topic=all}`:         6,
		`inflight_tasks{topic=all}`:               6,
		`placement_epoch{topic=all}`:              3,
		`migrating{topic=all}`:                    1,
		`retrying_tasks{topic=all}`:               0,
		`paused{topic=all}`:                       0,
		`topic_blocked{reason=redis,topic=all}`:   0,
		`topic_blocked{reason=other,topic=all}`:   0,
	})
	_, got := check.Metrics(t, reg)
	if len(got) != 12 {
		t.Errorf("%d series, want 12: %v", len(got), slices.Sorted(maps.Keys(got)))
	}
	set.Forget("a")
	if set.Together() || topicsOf(t, reg, "forwarded_total") != "b c" {
		t.Errorf("with two topics, those of %q are shown, want their own", topicsOf(t, reg, "forwarded_total"))
	}
}

// TestCountersOfAllTopicsNeverFall: a topic that is forgotten stays in what all have counted, and
// counts from 0 if it comes back.
func TestCountersOfAllTopicsNeverFall(t *testing.T) {
	t.Parallel()
	reg, set, topics := crowd(t, 1, "a", "b", "c", "d")
	want := map[string]float64{
		`forwarded_total{topic=all}`:              10,
		`intake_total{topic=all,verb=move}`:       10,
		`shard_errors_total{shard=all,topic=all}`: 10,
		`lateness_seconds_count{topic=all}`:       4,
		`lateness_seconds_sum{topic=all}`:         10,
	}
	check.Series(t, reg, want)
	set.Forget("d")
	set.Forget("b")
	set.Forget("unknown")
	topics[3].Forwarded.Inc() // by a handle of before
	check.Series(t, reg, want)
	check.Series(t, reg, map[string]float64{`inflight_tasks{topic=all}`: 4, `placement_epoch{topic=all}`: 3})
	set.Forget("c")
	check.Series(t, reg, map[string]float64{`forwarded_total{topic=a}`: 1})
}

// TestATopicInTroubleIsShownOnItsOwn, up to a number of topics. A sum counts those beyond.
func TestATopicInTroubleIsShownOnItsOwn(t *testing.T) {
	t.Parallel()
	reg, _, topics := crowd(t, 2, "a", "b", "c", "d", "all")
	topics[2].Paused.Set(true)
	topics[2].Blocked["redis"].Set(true)
	topics[2].Retrying.Set(7)
	check.Series(t, reg, map[string]float64{
		`paused{topic=c}`: 1, `paused{topic=all}`: 0, `topic_blocked{reason=redis,topic=c}`: 1,
		`retrying_tasks{topic=c}`: 7, `retrying_tasks{topic=all}`: 0,
	})
	for metric, want := range map[string]string{
		"paused": "all c", "topic_blocked": "all all c", "retrying_tasks": "all c",
	} {
		if got := topicsOf(t, reg, metric); got != want {
			t.Errorf("%s is shown of %q, want of %q", metric, got, want)
		}
	}
	for _, topic := range topics {
		topic.Paused.Set(true)
		topic.Retrying.Set(7)
	}
	if got := topicsOf(t, reg, "paused"); got != "a all b" {
		t.Errorf("paused is shown of %q, want of two topics and the others", got)
	}
	check.Series(t, reg, map[string]float64{`paused{topic=all}`: 0, `retrying_tasks{topic=b}`: 7, `retrying_tasks{topic=all}`: 21})
}

// TestOneOverdueTopicIsShownOnItsOwn: the other topics are one series, whatever their M.
func TestOneOverdueTopicIsShownOnItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, m := newMetrics(t)
		together := true
		shards, err := NewShardCollector(ShardCollectorConfig{
			Stats: func(context.Context) ([]ShardStat, error) {
				return []ShardStat{
					{Topic: "a", Shard: 0, Of: 2, Pending: 1, Backlog: 1, OldestDue: time.Second},
					{Topic: "a", Shard: 1, Of: 2, Pending: 2, Leased: 2},
					{Topic: "b", Shard: 0, Of: 1, Pending: 4, Backlog: 3, OldestDue: 2 * time.Second},
					{Topic: "late", Shard: 0, Of: 2, Pending: 8, Backlog: 8, OldestDue: overdue},
					{Topic: "late", Shard: 1, Of: 2, Pending: 16},
					{Topic: "parked", Shard: 0, Of: 1, Pending: 32, Parked: 32},
					{Topic: "parked too", Shard: 0, Of: 1, Pending: 64, Parked: 1},
				}, nil
			},
			Errors: m.errors, Series: 4, Topics: 2, Together: func() bool { return together },
			Log: slog.New(slog.DiscardHandler),
		})
		check.OK(t, err)
		check.OK(t, reg.Register(shards))
		check.Series(t, reg, map[string]float64{
			`pending_tasks{shard=all,topic=all}`:       71,
			`backlog_tasks{shard=all,topic=all}`:       4,
			`leased_tasks{shard=all,topic=all}`:        2,
			`parked_tasks{shard=all,topic=all}`:        1,
			`oldest_due_seconds{shard=all,topic=all}`:  2,
			`pending_tasks{shard=all,topic=late}`:      24,
			`oldest_due_seconds{shard=all,topic=late}`: 10,
			`parked_tasks{shard=all,topic=parked}`:     32,
		})
		if got := topicsOf(t, reg, "pending_tasks"); got != "all late parked" {
			t.Errorf("shards are shown of %q, want of two topics and the others", got)
		}
		together = false
		if got := topicsOf(t, reg, "pending_tasks"); got != "a a b late late parked parked too" {
			t.Errorf("shards are shown of %q, want of each topic", got)
		}
	})
}

// TestProblemsOfManyTopics have a series each for some topics, and one for the others.
func TestProblemsOfManyTopics(t *testing.T) {
	t.Parallel()
	reg := NewRegistry()
	check.OK(t, AddProblems(reg, 2, func() []problem.Problem {
		found := []problem.Problem{problem.New(problem.RedisUnreachable, "", "refused")}
		for _, topic := range []string{"d", "c", "b", "all"} {
			found = append(found, problem.New(problem.IntakeStopped, topic, "no queue"))
		}
		return append(found,
			problem.New(problem.ShardUnserved, "b", "shard 2"), problem.New(problem.ShardUnserved, "a", "shard 2"))
	}))
	check.Series(t, reg, map[string]float64{`problem{kind=intake_stopped,topic=all}`: 1, `problem{kind=redis_unreachable,topic=}`: 1})
	if got := topicsOf(t, reg, "problem"); got != " a all b b" {
		t.Errorf("problems are shown of %q", got)
	}
}

func TestNoRuleOfThatName(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("declared a metric whose topics are together in an unknown way")
		}
	}()
	DeclareForTopics[struct {
		Some prometheus.Gauge `metric:"some" together:"average" help:"Some."`
	}](&Set{})
}
