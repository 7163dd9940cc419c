package scanner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/test/check"
)

// TestStatusTellsWhyTasksStayAndHowFastTheyLeave: status shows a rate that holds tasks
// back, then a pause, and then how fast and how late tasks left. An idle topic with
// default settings has no note in the heartbeat.
func TestStatusTellsWhyTasksStayAndHowFastTheyLeave(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": one("tick: 20ms", "rate: 1", "lease: 20s"), "quiet": "{}"}, nil)
	ch, err := l.broker().Channel()
	check.OK(l.t, err)
	check.OK(l.t, ch.ExchangeDeclare("quiet", "direct", true, false, false, false, nil))
	l.start()
	l.put(1000)
	var s admin.TopicStatus
	check.Until(t, "the rate to hold tasks back", func() bool { s = l.status(); return s.Limited })
	if s.Rate != 1 || s.Paused || s.Backlog == 0 || s.Settings["rate"] != "1" || s.Settings["lease"] != "20s" ||
		s.Settings["window"] != "" {
		t.Errorf("status: %+v, want a backlog, and rate 1 and lease 20s among the settings", s)
	}

	l.write(map[string]string{"orders": one("tick: 20ms", "paused: true"), "quiet": "{}"})
	check.Until(t, "status to say paused", func() bool { s = l.status(); return s.Paused && !s.Limited })
	if n := l.value("duefleet_paused"); n != 1 {
		t.Errorf("duefleet_paused sums to %v over two topics, want 1", n)
	}
	if notes := fmt.Sprint(s.Notes); !strings.Contains(notes, "paused: nothing is delivered until it is resumed") {
		t.Errorf("notes: %s", notes)
	}

	l.write(map[string]string{"orders": one("tick: 20ms"), "quiet": "{}"})
	check.Until(t, "the tasks to leave", l.empty)
	check.Until(t, "status to say how fast", func() bool {
		s = l.status()
		return !s.Paused && s.PerSecond > 0 &&
			s.Median > 0
	})
	if n := l.value("duefleet_paused"); n != 0 {
		t.Errorf("duefleet_paused sums to %v after the pause, want 0", n)
	}
	if s.Worst < s.Median || s.Rate != 0 || s.Settings["rate"] != "" || len(s.Notes) != 0 {
		t.Errorf("status: %+v", s)
	}
	if notes := l.describe().Topics; len(notes) != 1 {
		t.Errorf("the heartbeat has notes of %d topics, want that of orders alone: %+v", len(notes), notes)
	}
}
