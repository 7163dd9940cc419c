package admin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
)

// TestJudge: a healthy fleet has no reasons, and each problem has its own.
func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	says := func(s *Status, kind problem.Kind, topic string) {
		s.Fleet[0].Problems = append(s.Fleet[0].Problems, problem.New(kind, topic, "text"))
	}
	for _, c := range []struct {
		name   string
		spoil  func(s *Status)
		want   string // the reasons, "" for none
		status problem.Severity
	}{
		{"healthy", func(*Status) {}, "", problem.Healthy},
		{"due soon, and just due", func(s *Status) { s.Topics[0].Oldest = now.Add(-59 * time.Second) }, "", problem.Healthy},
		{"nobody lives", func(s *Status) { s.Fleet[0].Alive, s.Fleet[1].Alive = false, false }, "no scanner runs",
			problem.Broken},
		{"nobody at all", func(s *Status) { *s = Status{} }, "no scanner runs", problem.Broken},
		{"one died", func(s *Status) {
			says(s, problem.TasksRetried, "orders")
			s.Fleet[0].Alive, s.Fleet[0].Heartbeat, s.Fleet[1].Started = false, now, now.Add(-time.Hour)
		}, "1 of 2 scanners died, or don't reach Redis: a", problem.Degraded},
		{"one died and is replaced", func(s *Status) {
			s.Fleet[0].Alive, s.Fleet[0].Heartbeat, s.Fleet[1].Started = false, now.Add(-time.Minute), now.Add(-time.Second)
		}, "", problem.Healthy},
		{"two died and one is replaced", func(s *Status) {
			s.Fleet[0].Alive, s.Fleet[0].Heartbeat, s.Fleet[1].Started = false, now.Add(-time.Minute), now.Add(-time.Second)
			s.Fleet = append(s.Fleet, balance.Member{Instance: "c", Heartbeat: now.Add(-time.Hour)})
		}, "1 of 3 scanners died, or don't reach Redis: c", problem.Degraded},
		{"late", func(s *Status) { s.Topics[0].Oldest = now.Add(-61 * time.Second) },
			"topic orders: a task has been due for 1m1s", problem.Degraded},
		{"parked", func(s *Status) { s.Topics[0].Parked = 3 }, "topic orders: 3 tasks are parked", problem.Degraded},
		{"a document", func(s *Status) { says(s, problem.DocumentRefused, "mail") }, "scanner a: topic mail: text",
			problem.Degraded},
		{"a notice", func(s *Status) { says(s, problem.RedisUnsafe, "") }, "", problem.Healthy},
		{"one of two can't deliver", func(s *Status) { says(s, problem.RabbitMQUnreachable, "orders") },
			"scanner a: topic orders: text", problem.Degraded},
		{"one of two knows what was lost", func(s *Status) { says(s, problem.DataLost, "") }, "scanner a: text",
			problem.Broken},
		{"nobody can deliver", func(s *Status) {
			says(s, problem.RabbitMQUnreachable, "orders")
			s.Fleet[1].Problems = s.Fleet[0].Problems
		}, "topic orders: text", problem.Broken},
	} {
		s := Status{
			Topics: []TopicStatus{{Topic: "orders", Pending: 5}},
			Fleet: []balance.Member{{Instance: "a", Alive: true, Problems: []problem.Problem{}},
				{Instance: "b", Alive: true, Problems: []problem.Problem{}}},
		}
		c.spoil(&s)
		s.judge(now, "")
		if got := strings.Join(s.Reasons(), "|"); got != c.want || s.Status != c.status {
			t.Errorf("%s: %s, %q; want %s, %q", c.name, s.Status, got, c.status, c.want)
		}
	}
}

// TestEachProblemIsShownOnce: a topic's notes have its problems, without those that its
// counts show. The lines have the others.
func TestEachProblemIsShownOnce(t *testing.T) {
	t.Parallel()
	s := Status{
		Topics: []TopicStatus{{Topic: "orders", Parked: 1}},
		Fleet: []balance.Member{{Instance: "a", Alive: true, Problems: []problem.Problem{
			problem.New(problem.ExchangeMissing, "orders", "404"), problem.New(problem.TopicNotMade, "mails", "not there"),
			problem.New(problem.RedisUnsafe, "", "evicts")}}},
	}
	s.judge(time.Now(), "")
	if got := s.Topics[0].Notes; !slices.Equal(got, []string{"404"}) {
		t.Errorf("notes: %q", got)
	}
	if got := s.Lines(); !slices.Equal(got, []string{"topic mails: not there", "evicts"}) {
		t.Errorf("lines: %q", got)
	}
	if len(s.Problems) != 4 || s.Problems[0].Advice == "" {
		t.Errorf("problems: %+v", s.Problems)
	}
}
