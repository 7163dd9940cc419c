package balance

import (
	"maps"
	"slices"

	"github.com/duefleet/duefleet/internal/problem"
)

// Problems returns what the live members report, each with the member as its node.
func Problems(members []Member) (all []problem.Problem) {
	for _, m := range Live(members) {
		found := slices.Clone(m.Problems)
		if m.Problems == nil {
			found = m.fromTexts()
		}
		for _, p := range found {
			p.Nodes = []string{m.Instance}
			all = append(all, p)
		}
	}
	return all
}

// fromTexts returns the problems of a member of version 0.1, which reports only texts. It
// goes once no scanner of that version can be in a fleet with this one.
func (m Member) fromTexts() (found []problem.Problem) {
	if len(m.Warnings) > 0 {
		found = append(found, problem.Unsafe(m.Warnings))
	}
	if m.Refused != "" {
		found = append(found, problem.New(problem.OtherSource, "", m.Refused))
	}
	for _, topic := range slices.Sorted(maps.Keys(m.Errors)) {
		switch text := m.Errors[topic]; {
		case topic != "":
			found = append(found, problem.New(problem.DocumentRefused, topic, text))
		case m.Away:
			found = append(found, problem.Away(problem.SourceAway, text))
		default:
			found = append(found, problem.New(problem.ConfigurationRefused, "", text))
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(m.Troubles)) {
		found = append(found, problem.New(problem.TopicUnserved, topic, m.Troubles[topic]))
	}
	return found
}

// SayAsTexts sets the fields that a member of version 0.1 reads, from the problems: Warnings
// are given, because a problem has them as one text.
func (m *Member) SayAsTexts(warnings []string) {
	m.Warnings, m.Troubles = warnings, map[string]string{}
	for _, p := range m.Problems {
		if _, there := m.Troubles[p.Topic]; p.Topic != "" && p.Kind != problem.DocumentRefused &&
			p.Kind != problem.TopicNotMade && !there {
			m.Troubles[p.Topic] = p.Text
		}
	}
}
