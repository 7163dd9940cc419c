package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
)

// TestReasons: a healthy fleet has none, and each problem has its own.
func TestReasons(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		spoil func(s *Status)
		want  string // the reasons, "" for none
	}{
		{"healthy", func(*Status) {}, ""},
		{"due soon, and just due", func(s *Status) { s.Topics[0].Oldest = now.Add(-59 * time.Second) }, ""},
		{"a dead member's errors", func(s *Status) { s.Fleet[1].Errors = map[string]string{"orders": "broken"} }, ""},
		{"nobody lives", func(s *Status) { s.Fleet[0].Alive = false }, "no scanner runs"},
		{"nobody at all", func(s *Status) { *s = Status{} }, "no scanner runs"},
		{"a note", func(s *Status) { s.Topics[0].Notes = []string{"paused"} }, "topic orders: paused"},
		{"late", func(s *Status) { s.Topics[0].Oldest = now.Add(-61 * time.Second) },
			"topic orders: a task has been due for 1m1s"},
		{"parked", func(s *Status) { s.Topics[0].Parked = 3 }, "topic orders: 3 tasks are parked"},
		{"a document", func(s *Status) { s.Fleet[0].Errors = map[string]string{"mail": "mail:1: broken"} },
			"configuration: mail:1: broken"},
		{"a document of a topic", func(s *Status) {
			s.Fleet[0].Errors = map[string]string{"orders": "broken"}
			s.Topics[0].Notes = []string{"broken"}
		}, "topic orders: broken"},
	} {
		s := Status{
			Topics: []TopicStatus{{Topic: "orders", Pending: 5}},
			Fleet:  []balance.Member{{Instance: "a", Alive: true}, {Instance: "b"}},
		}
		c.spoil(&s)
		var texts []string
		for _, r := range s.Reasons(now) {
			texts = append(texts, r.String())
		}
		if got := strings.Join(texts, "|"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
