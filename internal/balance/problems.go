package balance

import "github.com/duefleet/duefleet/internal/problem"

// Problems returns what the live members report, each with the member as its node.
func Problems(members []Member) (all []problem.Problem) {
	for _, m := range Live(members) {
		for _, p := range m.Problems {
			p.Nodes = []string{m.Instance}
			all = append(all, p)
		}
	}
	return all
}

// Trouble returns why the member doesn't serve a topic as it should; "" if it does.
func (m Member) Trouble(topic string) string {
	for _, p := range m.Problems {
		if p.Topic == topic && p.Kind != problem.DocumentRefused && p.Kind != problem.TopicNotMade {
			return p.Text
		}
	}
	return ""
}
