package scanner

import (
	"testing"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/wait"
)

// TestTheSettingHistory is applied live, in all shards, also in those that a change of M adds.
// A delivered task has its events.
func TestTheSettingHistory(t *testing.T) {
	t.Parallel()
	l := onTopic(t, "tick: 50ms")
	l.put(1)
	wait.For(t, "the first task to leave", l.empty)
	kept := func(of int, want string) {
		t.Helper()
		wait.For(t, "the shards to keep events for "+want+" ms", func() bool {
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
	wait.For(t, "the second task to leave", l.empty)
	events, err := l.topic("orders").Events(t.Context(), "o-0")
	l.ok(err)
	if len(events) != 2 || events[0].Kind != task.Scheduled || events[1].Kind != task.Delivered {
		t.Errorf("events: %v", events)
	}
	l.write(map[string]string{"orders": declaring("orders", "history: 2h", "tick: 50ms", "shards: 3")})
	kept(3, "7200000")
	l.write(map[string]string{"orders": declaring("orders", "tick: 50ms", "shards: 3")})
	kept(3, "0")
}
