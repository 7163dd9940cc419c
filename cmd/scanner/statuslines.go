package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/problem"
)

// fewTopics is how many topics are shown one by one at most. If there are more, status shows
// those that need attention.
const fewTopics = 20

// statusView says which topics status prints, and how. The zero value prints a few topics in
// full, and of more than fewTopics one line for each that needs attention.
type statusView struct {
	shards  bool         // all topics in full, with each shard
	all     bool         // one line for each topic
	problem problem.Kind // one line for each topic that has it; "" is none
}

// printLines prints one line for each topic that v selects, the worst first, and the sums of
// the others.
func (v statusView) printLines(w io.Writer, s admin.Status, now time.Time) {
	topics := s.WorstFirst()
	shown, what := topics, ""
	switch {
	case v.problem != "":
		shown = having(topics, v.problem)
		topics, what = shown, fmt.Sprintf("; %d have the problem %s", len(shown), v.problem)
	case !v.all:
		shown = topics[:min(attention(topics), fewTopics)]
	}
	fmt.Fprintf(w, "%d topics: %s%s\n", len(s.Topics), states(s.Topics), what)
	if len(topics) > 0 {
		fmt.Fprintln(w, "  TOPIC\tSTATE\tSTORED\tWAITING\tBACKLOG\tLEASED\tPARKED\tOLDEST DUE\tPROBLEMS")
	}
	for _, t := range shown {
		topicRow(w, t.Topic, string(t.Status), kinds(t), now, t)
	}
	if more := topics[len(shown):max(attention(topics), len(shown))]; len(more) > 0 {
		topicRow(w, fmt.Sprintf("and %d more", len(more)), states(more), "", now, more...)
	}
	if rest := topics[max(attention(topics), len(shown)):]; len(rest) > 0 {
		topicRow(w, fmt.Sprintf("%d others", len(rest)), states(rest), "", now, rest...)
	}
	if len(shown) < len(topics) {
		fmt.Fprintln(w, "`scanner status TOPIC` shows one topic in full, --problem KIND those with a problem, --all each one")
	}
	fmt.Fprintln(w)
}

// topicRow prints a topic, or the sums of several, on one line.
func topicRow(w io.Writer, name, state, problems string, now time.Time, topics ...admin.TopicStatus) {
	sum := total(topics...)
	line := fmt.Sprintf("  %s\t%s\t%s", name, state, cells(sum, distance(sum.Oldest, now)))
	if problems != "" {
		line += "\t" + problems
	}
	fmt.Fprintln(w, line)
}

// distance says how far a time is from now; the zero time is a dash.
func distance(t, now time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case t.Before(now):
		return age(now.Sub(t)) + " ago"
	}
	return "in " + age(t.Sub(now))
}

// attention returns how many topics, which are sorted, need attention.
func attention(topics []admin.TopicStatus) int {
	n := slices.IndexFunc(topics, func(t admin.TopicStatus) bool { return t.Status == problem.Healthy })
	if n < 0 {
		return len(topics)
	}
	return n
}

// having returns the topics that have a problem.
func having(topics []admin.TopicStatus, kind problem.Kind) []admin.TopicStatus {
	return slices.DeleteFunc(slices.Clone(topics), func(t admin.TopicStatus) bool {
		return !slices.Contains(t.Kinds, kind)
	})
}

// states counts topics by their state, as in "1 broken, 999 healthy".
func states(topics []admin.TopicStatus) string {
	counts := map[problem.Severity]int{}
	for _, t := range topics {
		counts[t.Status]++
	}
	var parts []string
	for _, state := range []problem.Severity{problem.Broken, problem.Degraded, problem.Healthy} {
		if counts[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
		}
	}
	return strings.Join(parts, ", ")
}

// kinds names a topic's problems, and a change of M.
func kinds(t admin.TopicStatus) string {
	var names []string
	for _, kind := range t.Kinds {
		names = append(names, string(kind))
	}
	if t.Change != nil {
		names = append(names, fmt.Sprintf("migrating from %d", t.Previous))
	}
	return strings.Join(names, ", ")
}
