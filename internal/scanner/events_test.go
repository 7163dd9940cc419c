package scanner

import (
	"net"
	"testing"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestTheSettingHistory is applied live, in all shards, also in those that a change of M adds.
// A delivered task has its events.
func TestTheSettingHistory(t *testing.T) {
	t.Parallel()
	l := onTopic(t, "tick: 50ms")
	l.put(1)
	check.Until(t, "the first task to leave", l.empty)
	kept := func(of int, want string) {
		t.Helper()
		check.Until(t, "the shards to keep events for "+want+" ms", func() bool {
			for at := range of {
				fence := l.cfg.Settings.Redis.Prefix + ":fence:{orders:" + string(rune('0'+at)) + "}"
				if l.rdb.HGet(t.Context(), fence, "history").Val() != want {
					return false
				}
			}
			return true
		})
	}
	l.apply("history: 1h", "tick: 50ms")
	kept(1, "3600000")
	l.put(1)
	check.Until(t, "the second task to leave", l.empty)
	events, err := l.topic("orders").Events(t.Context(), "o-0")
	check.OK(l.t, err)
	if len(events) != 2 || events[0].Kind != task.Scheduled || events[1].Kind != task.Delivered {
		t.Errorf("events: %v", events)
	}
	l.write(map[string]string{"orders": declaring("orders", "history: 2h", "tick: 50ms", "shards: 3")})
	kept(3, "7200000")
	l.write(map[string]string{"orders": declaring("orders", "tick: 50ms", "shards: 3")})
	kept(3, "0")
}

// TestATopicIsServedOnceRedisAnswered: before that the log doesn't say that it is served.
func TestATopicIsServedOnceRedisAnswered(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	_ = closed.Close()
	away := newLoneOn(t, closed.Addr().String(), "nowhere", map[string]string{"orders": declaring("orders")}, nil)
	away.run()
	check.Until(t, "the scanner to miss Redis", func() bool {
		return away.served("orders") != nil &&
			len(away.said.Lines("redis does not serve")) > 0
	})
	if lines := away.said.Lines("topic served"); len(lines) > 0 {
		t.Errorf("without Redis it says %q", lines)
	}

	addr, prefix := servertest.Redis(t)
	l := newLoneOn(t, addr, prefix, map[string]string{"orders": declaring("orders", "shards: 2")}, nil)
	l.start()
	check.Until(t, "the log to say that the topic is served", func() bool { return len(l.said.Lines("topic served")) > 0 })
	if lines := l.said.Lines(`msg="topic served" topic=orders shards=2 exchange=orders`); len(lines) != 1 {
		t.Errorf("it says %q", l.said.Lines("topic served"))
	}
}
