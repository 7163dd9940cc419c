package scanner

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// whole returns the status of the whole fleet.
func (l *lone) whole() admin.Status {
	l.t.Helper()
	s, err := admin.ReadStatus(l.t.Context(), l.store, "")
	check.OK(l.t, err)
	return s
}

// problem returns a problem of the fleet, as its status has it; zero if there is none.
func (l *lone) problem(kind problem.Kind, topic string) (found problem.Problem) {
	l.t.Helper()
	for _, p := range l.whole().Problems {
		if p.Kind == kind && p.Topic == topic {
			found = p
		}
	}
	return found
}

// TestAFullRedisReachesStatus: Redis is at maxmemory. The scanner stays ready and its
// heartbeats go on, so status has the problem while it lasts.
func TestAFullRedisReachesStatus(t *testing.T) {
	t.Parallel()
	l := loneOn(t, servertest.OwnRedis(t))
	l.durability.Every = 10 * time.Millisecond
	l.run()
	check.OK(l.t, l.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	check.Until(t, "the problem", func() bool { return l.problem(problem.RedisFull, "").Kind != "" })
	if room, up := l.roomInRedis(), l.redisUp(); room.OK || !up.OK || l.whole().Status != problem.Broken {
		t.Errorf("room %+v, up %+v, status %s", room, up, l.whole().Status)
	}
	beat := l.heartbeat.State().Answered
	check.Until(t, "another heartbeat", func() bool { return l.heartbeat.State().Answered.Sub(beat) > 0 })
	check.OK(l.t, l.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	check.Until(t, "its end", func() bool { return l.problem(problem.RedisFull, "").Kind == "" && l.roomInRedis().OK })
}

// TestANearlyFullRedisIsReported: Redis uses 95 % of maxmemory. The scanner stays ready, and
// status, /readyz, the metrics and the log report it. It is no longer reported when Redis is
// full, or when there is no limit.
func TestANearlyFullRedisIsReported(t *testing.T) {
	t.Parallel()
	l := loneOn(t, servertest.OwnRedis(t))
	l.durability.Every = 10 * time.Millisecond
	l.start()
	check.OK(l.t, l.rdb.SetRange(t.Context(), "filler", 64<<20, "x").Err()) // so that 5 % are much
	used, err := strconv.Atoi(registry.ParseInfo(l.rdb.Info(t.Context(), "memory").Val())["used_memory"])
	check.OK(l.t, err)
	limit := func(bytes int) {
		t.Helper()
		check.OK(l.t, l.rdb.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(bytes)).Err())
	}
	limit(used * 100 / 95)
	var found problem.Problem
	check.Until(t, "the problem", func() bool { found = l.problem(problem.RedisNearlyFull, ""); return found.Kind != "" })
	if found.Severity != problem.Degraded || !strings.Contains(found.Text, " uses 95 % of its maxmemory") {
		t.Errorf("%+v", found)
	}
	l.sees(true, "redis_nearly_full")
	share := func() float64 {
		return l.value("duefleet_redis_memory_used_bytes") / l.value("duefleet_redis_memory_max_bytes")
	}
	if got := share(); got < 0.94 || got > 0.96 {
		t.Errorf("the metrics show %v of maxmemory", got)
	}
	if status, body := l.ask("/readyz"); status != http.StatusOK || !strings.Contains(body, "memory: down (optional)") {
		t.Errorf("/readyz: %d, %q", status, body)
	}
	if lines := l.said.Lines("redis is nearly full"); len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") {
		t.Errorf("the log tells %q", lines)
	}
	limit(1)
	l.sees(true, "redis_full")
	l.sees(false, "redis_nearly_full")
	limit(0)
	l.sees(false, "redis_full")
	l.sees(false, "redis_nearly_full")
	if got := l.value("duefleet_redis_memory_max_bytes"); got != 0 {
		t.Errorf("without a limit the metric shows %v", got)
	}
}

// TestAProblemReachesStatus: the exchange of one topic is missing, and another topic is
// served. Status has one problem with its kind, its scanner and its facts. Its beginning
// stays while it lasts. It is gone once the exchange is there.
func TestAProblemReachesStatus(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": "{shards: 1, exchange: missing}", "mails": declaring("mails")}, nil)
	l.run()
	var found problem.Problem
	check.Until(t, "the problem", func() bool {
		found = l.problem(problem.ExchangeMissing, "orders")
		return found.Kind != ""
	})
	if found.Severity != problem.Broken || !slices.Equal(found.Nodes, []string{"lone"}) || found.Advice == "" ||
		found.Facts["reason"] != "not_found" || found.Since.IsZero() {
		t.Errorf("%+v", found)
	}
	if s := l.whole(); s.Status != problem.Broken || l.problem(problem.ExchangeMissing, "mails").Kind != "" {
		t.Errorf("status %s: %+v", s.Status, s.Problems)
	}
	beat := l.heartbeat.State().Answered
	check.Until(t, "another heartbeat", func() bool { return l.heartbeat.State().Answered.Sub(beat) > 0 })
	if later := l.problem(problem.ExchangeMissing, "orders"); !later.Since.Equal(found.Since) {
		t.Errorf("since %s, and then since %s", found.Since, later.Since)
	}
	check.OK(l.t, servertest.Channel(t, l.rabbit).ExchangeDeclare("missing", "topic", true, false, false, false, nil))
	check.Until(t, "its end", func() bool { return l.problem(problem.ExchangeMissing, "orders").Kind == "" })
}

// seen returns the problems that the metrics show, as "kind topic".
func (l *lone) seen() (all []string) {
	l.t.Helper()
	families, err := l.cfg.Registry.Gather()
	check.OK(l.t, err)
	for _, f := range families {
		if f.GetName() != "duefleet_problem" {
			continue
		}
		for _, m := range f.GetMetric() { // the labels are in order: kind, topic
			all = append(all, strings.TrimSpace(m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()))
		}
	}
	return all
}

// sees waits until the metrics show a problem, or until they don't.
func (l *lone) sees(want bool, series string) {
	l.t.Helper()
	check.Until(l.t, fmt.Sprintf("%q to be shown: %t", series, want), func() bool {
		return slices.Contains(l.seen(), series) == want
	})
}

// TestProblemsAreMetrics: an intake that stands still is shown while it does. A removed topic
// leaves no series.
func TestProblemsAreMetrics(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": taking("first"), "mails": "{shards: 1, exchange: missing}"}, nil)
	channel := servertest.Channel(t, l.rabbit)
	check.OK(l.t, channel.ExchangeDeclare("in", "fanout", true, false, false, false, nil)) // scanners declare another type
	l.run()
	l.sees(true, "intake_stopped orders")
	l.sees(true, "exchange_missing mails")
	check.OK(l.t, channel.ExchangeDelete("in", false, false))
	l.sees(false, "intake_stopped orders")

	l.write(map[string]string{"orders": taking("first")})
	l.sees(true, "topic_orphan mails")
	l.remove("mails", map[string]string{"orders": taking("first")})
	if left := l.seen(); slices.ContainsFunc(left, func(s string) bool { return strings.HasSuffix(s, " mails") }) {
		t.Errorf("the removed topic left %q", left)
	}
}

// TestAnUnansweredScannerIsAMetric: the heartbeat can't say that Redis doesn't answer.
func TestAnUnansweredScannerIsAMetric(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	l := loneOn(t, server)
	l.start()
	l.sees(false, "redis_unreachable")
	check.OK(l.t, server.Kill())
	l.sees(true, "redis_unreachable")
	check.OK(l.t, server.Restart(t.Context()))
	l.sees(false, "redis_unreachable")
}

// TestTheMetricsNameOnlyServedTopics: others come from the source, which has no bound.
func TestTheMetricsNameOnlyServedTopics(t *testing.T) {
	t.Parallel()
	cfg := newUnconnected(t).cfg
	cfg.Source, cfg.Registry = brokenSource{newFixed(t)}, nil
	s, err := New(cfg)
	check.OK(t, err)
	check.Background(t, "the watch", func(ctx context.Context) error { return s.documents.Watch(ctx, "") })
	check.Until(t, "the document to be refused", func() bool { return len(s.documents.State().Errors) == 1 })
	found := s.measured()
	at := slices.IndexFunc(found, func(p problem.Problem) bool { return p.Kind == problem.DocumentRefused })
	if at < 0 || found[at].Topic != "" {
		t.Errorf("%+v", found)
	}
}

// TestATopicIsUnservedWhileItsChannelOpens: RabbitMQ doesn't answer on an open connection. Once
// the scanner gives up the connection, the problem is that RabbitMQ can't be reached. Status has
// both.
func TestATopicIsUnservedWhileItsChannelOpens(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders")}, nil)
	l.start()
	for _, stream := range []string{"upstream", "downstream"} {
		faults.Toxic(t, l.bridge, stream, "timeout", stream, map[string]any{"timeout": 0})
	}
	l.write(map[string]string{"orders": declaring("orders"), "more": declaring("more")})
	for _, kind := range []problem.Kind{problem.TopicUnserved, problem.RabbitMQUnreachable} {
		check.Until(t, string(kind), func() bool { return l.problem(kind, "more").Kind != "" })
	}
}
