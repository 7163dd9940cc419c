package scanner

import (
	"slices"
	"testing"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// whole returns the status of the whole fleet.
func (l *lone) whole() admin.Status {
	l.t.Helper()
	s, err := admin.ReadStatus(l.t.Context(), l.store, "")
	l.ok(err)
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
	l.run()
	l.ok(l.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	wait.For(t, "the problem", func() bool { return l.problem(problem.RedisFull, "").Kind != "" })
	if room, up := l.roomInRedis(), l.redisUp(); room.OK || !up.OK || l.whole().Status != problem.Broken {
		t.Errorf("room %+v, up %+v, status %s", room, up, l.whole().Status)
	}
	beat := l.heartbeat.State().Answered
	wait.For(t, "another heartbeat", func() bool { return l.heartbeat.State().Answered.Sub(beat) > 0 })
	l.ok(l.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	wait.For(t, "its end", func() bool { return l.problem(problem.RedisFull, "").Kind == "" && l.roomInRedis().OK })
}

// TestAProblemReachesStatus: the exchange of one topic is missing, and another topic is
// served. Status has one problem with its kind, its scanner and its facts. Its beginning
// stays while it lasts. It is gone once the exchange is there.
func TestAProblemReachesStatus(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": "{shards: 1, exchange: missing}", "mails": declaring("mails")}, nil)
	l.run()
	var found problem.Problem
	wait.For(t, "the problem", func() bool {
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
	wait.For(t, "another heartbeat", func() bool { return l.heartbeat.State().Answered.Sub(beat) > 0 })
	if later := l.problem(problem.ExchangeMissing, "orders"); !later.Since.Equal(found.Since) {
		t.Errorf("since %s, and then since %s", found.Since, later.Since)
	}
	l.ok(servertest.Channel(t, l.rabbit).ExchangeDeclare("missing", "topic", true, false, false, false, nil))
	wait.For(t, "its end", func() bool { return l.problem(problem.ExchangeMissing, "orders").Kind == "" })
}
