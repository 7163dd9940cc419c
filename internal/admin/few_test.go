package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
)

// TestFewShowsThreeOfAKind, and the fourth with all that are left out.
func TestFewShowsThreeOfAKind(t *testing.T) {
	t.Parallel()
	var got []string
	items := strings.Fields("a1 b1 a2 -x a3 a4 b2 a5 -y -z -u a6")
	kind := func(s string) string { return strings.Trim(s[:1], "-") }
	for item, more := range Few(items, kind) {
		got = append(got, fmt.Sprint(item, more))
	}
	check.Equal(t, "items", strings.Join(got, " "), "a1[] b1[] a2[] -x[] a3[] a4[a4 a5 a6] b2[] -y[] -z[] -u[]")
	check.Equal(t, "three names", Names([]string{"a", "b", "c"}), "a, b, c")
	check.Equal(t, "five names", Names([]string{"a", "b", "c", "d", "e"}), "a, b, c and 2 more")
}

// TestManyTopicsAreSorted: the worst topics come first, and many problems of a kind are counted.
func TestManyTopicsAreSorted(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	s := Status{
		Topics: []TopicStatus{{Topic: "idle"}, {Topic: "later", Oldest: ago(-time.Hour)},
			{Topic: "d2", Parked: 1, Backlog: 1}, {Topic: "d1", Parked: 1, Backlog: 2}, {Topic: "d3", Parked: 1, Backlog: 1},
			{Topic: "late", Oldest: ago(time.Hour)}, {Topic: "broken", Parked: 1}},
		Fleet: []balance.Member{{Instance: "a", Alive: true, Problems: []problem.Problem{
			problem.New(problem.RabbitMQUnreachable, "broken", "away")}}},
	}
	s.judge(now, "")
	var got []string
	for _, topic := range s.WorstFirst() {
		got = append(got, fmt.Sprint(topic.Topic, " ", topic.Status, topic.Kinds))
	}
	check.Equal(t, "topics", strings.Join(got, "\n"), `broken broken[rabbitmq_unreachable tasks_parked]
late degraded[tasks_late]
d1 degraded[tasks_parked]
d2 degraded[tasks_parked]
d3 degraded[tasks_parked]
later healthy[]
idle healthy[]`)
	check.Equal(t, "reasons", strings.Join(s.Reasons(), "\n"), `topic broken: away
topic broken: 1 tasks are parked
topic d1: 1 tasks are parked
topic d2: 1 tasks are parked
1 more problems tasks_parked: topics d3
topic late: a task has been due for 1h0m0s`)
}
