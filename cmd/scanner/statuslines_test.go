package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// manyTopics returns a status of 1,000 topics: 2 are broken, 30 degraded, and one migrates.
func manyTopics() (s admin.Status) {
	for i := range 1000 {
		t := admin.TopicStatus{Topic: fmt.Sprintf("topic-%03d", i), Shards: 4, Phase: shard.Stable, Polled: 4,
			Status: problem.Healthy, Pending: 10, Oldest: now.Add(time.Hour)}
		switch {
		case i == 500 || i == 700:
			t.Status, t.Kinds = problem.Broken, []problem.Kind{problem.ExchangeMissing, problem.TasksLate}
			t.Backlog, t.Oldest = 5, now.Add(time.Duration(-i)*time.Second)
		case i%33 == 1 && i < 990:
			t.Status, t.Kinds, t.Parked = problem.Degraded, []problem.Kind{problem.TasksParked}, 2
			t.Pending += int64(i)
		case i == 999:
			t.Change, t.Previous = &admin.Change{}, 2
		}
		s.Topics = append(s.Topics, t)
	}
	return s
}

// TestStatusOfManyTopicsAsText: it has a line for each of the worst topics, and the sums of the
// others. --all and --problem have one line for each topic that they select.
func TestStatusOfManyTopicsAsText(t *testing.T) {
	t.Parallel()
	s := manyTopics()
	text := func(v statusView) string {
		t.Helper()
		var out bytes.Buffer
		check.OK(t, v.print(&out, s, now))
		return out.String()
	}
	isGolden(t, "status_many", text(statusView{}))
	isGolden(t, "status_problem", text(statusView{problem: problem.ExchangeMissing}))
	if all := text(statusView{all: true}); strings.Count(all, "\n  topic-") != 1000 || strings.Contains(all, "others") ||
		!strings.Contains(all, "migrating from 2") || strings.Index(all, "topic-700") > strings.Index(all, "topic-500") {
		t.Errorf("with --all: %.4000s", all)
	}
	if none := text(statusView{problem: problem.TopicPaused}); !strings.Contains(none,
		"; 0 have the problem topic_paused\n\nfleet:") {
		t.Errorf("topics with a problem that none has:\n%s", none)
	}
	if full := text(statusView{shards: true}); strings.Count(full, "\ntopic topic-") != 999 {
		t.Errorf("with --shards: %.4000s", full)
	}
	s.Topics = s.Topics[:fewTopics]
	if full := text(statusView{}); strings.Count(full, ": M 4, epoch 0, stable\n") != fewTopics {
		t.Errorf("of %d topics:\n%s", fewTopics, full)
	}
}

// TestStatusFiltersByProblem: both formats have the topics with the problem. An unknown kind,
// and flags that contradict each other, are mistakes.
func TestStatusFiltersByProblem(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "topics: {}\n")
	for _, name := range []string{"good", "bad"} {
		_, err := o.store.Topic(name).Ensure(t.Context(), 1)
		check.OK(t, err)
	}
	fixture.Park(t, o.store.Topic("bad"), "a", "refused")
	o.wants(cli.Done, "2 topics: 1 degraded, 1 healthy; 1 have the problem tasks_parked\n", "status", "--problem",
		"tasks_parked")
	o.wants(cli.Done, "  bad    degraded  ", "status", "--all")
	code, text := o.call("status", "--problem", "tasks_parked", "-o", "json")
	var s admin.Status
	check.OK(t, json.Unmarshal([]byte(text), &s))
	if code != cli.Done || len(s.Topics) != 1 || s.Topics[0].Topic != "bad" || s.Topics[0].Status != problem.Degraded ||
		len(s.Topics[0].Kinds) != 1 {
		t.Errorf("code %d, %+v", code, s.Topics)
	}
	o.wants(cli.Usage, "there is no such kind", "status", "--problem", "tasks_praked")
	o.wants(cli.Usage, "[all problem]", "status", "--all", "--problem", "tasks_parked")
	o.wants(cli.Usage, "[topic all]", "status", "bad", "--all")
}
