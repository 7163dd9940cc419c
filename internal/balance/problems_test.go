package balance

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
)

// TestProblemsOfTheLiving: a dead member reports nothing.
func TestProblemsOfTheLiving(t *testing.T) {
	t.Parallel()
	for heartbeat, want := range map[string][]string{
		`{"alive":true}`:               {},
		`{"alive":true,"problems":[]}`: {},
		`{"problems":[{"kind":"exchange_missing","topic":"orders","text":"404"}]}`:              {},
		`{"alive":true,"problems":[{"kind":"exchange_missing","topic":"orders","text":"404"}]}`: {"exchange_missing orders [a]"},
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

// TestTroubleIsTheFirstProblemOfATopic that isn't about its document.
func TestTroubleIsTheFirstProblemOfATopic(t *testing.T) {
	t.Parallel()
	m := Member{Problems: []problem.Problem{problem.New(problem.DocumentRefused, "orders", "line 1"),
		problem.New(problem.ExchangeMissing, "orders", "404"), problem.New(problem.TopicOrphan, "orders", "orphan"),
		problem.Unsafe([]string{"evicts"})}}
	check.Equal(t, "the trouble of orders", m.Trouble("orders"), "404")
	check.Equal(t, "the trouble of mails", m.Trouble("mails"), "")
}
