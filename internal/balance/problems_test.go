package balance

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
)

// TestProblemsOfBothVersions: a member of version 0.1 reports texts, and its problems have
// kinds all the same. A member of this version reports both, and only its problems count. A
// dead member reports nothing.
func TestProblemsOfBothVersions(t *testing.T) {
	t.Parallel()
	for heartbeat, want := range map[string][]string{
		`{"alive":true}`:                {},
		`{"alive":true,"problems":[]}`:  {},
		`{"troubles":{"orders":"404"}}`: {},
		`{"alive":true,"troubles":{"orders":"404"},"warnings":["evicts","forgets"],"refused":"other",
			"config_errors":{"orders":"line 1","":"file"}}`: {"redis_unsafe  [a]", "other_source  [a]",
			"configuration_refused  [a]", "document_refused orders [a]", "topic_unserved orders [a]"},
		`{"alive":true,"config_source_away":true,"config_errors":{"":"no leader"}}`: {"source_away  [a]"},
		`{"alive":true,"troubles":{"orders":"404"},
			"problems":[{"kind":"exchange_missing","topic":"orders","text":"404"}]}`: {"exchange_missing orders [a]"},
		`{"alive":true,"troubles":{"orders":"404"},"problems":[]}`: {},
	} {
		m := Member{Instance: "a"}
		check.OK(t, json.Unmarshal([]byte(heartbeat), &m))
		got := []string{}
		for _, p := range Problems([]Member{m}) {
			got = append(got, fmt.Sprint(p.Kind, " ", p.Topic, " ", p.Nodes))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", heartbeat, got, want)
		}
	}
}

// TestAHeartbeatIsReadByVersion01: a member without problems says so, and its problems of
// topics are there as texts too.
func TestAHeartbeatIsReadByVersion01(t *testing.T) {
	t.Parallel()
	m := Member{Problems: []problem.Problem{}}
	m.SayAsTexts(nil)
	text, err := json.Marshal(m)
	check.OK(t, err)
	var read map[string]any
	check.OK(t, json.Unmarshal(text, &read))
	if all, there := read["problems"].([]any); !there || len(all) != 0 {
		t.Errorf("no problem: %s", text)
	}
	m.Problems = []problem.Problem{problem.New(problem.DocumentRefused, "orders", "line 1"),
		problem.New(problem.ExchangeMissing, "orders", "404"), problem.New(problem.TopicOrphan, "orders", "orphan"),
		problem.Unsafe([]string{"evicts"})}
	m.SayAsTexts([]string{"evicts"})
	if got := fmt.Sprint(m.Troubles, m.Warnings); got != "map[orders:404] [evicts]" {
		t.Errorf("as texts: %s", got)
	}
}
