package config

import (
	"fmt"
	"slices"
	"strings"
)

// circle is a way of tasks from topic to topic, which ends where it begins.
type circle []circleStep

type circleStep struct{ topic, exchange string }

func (c circle) String() string {
	steps := make([]string, len(c))
	for i, s := range c {
		next := c[(i+1)%len(c)].topic
		steps[i] = fmt.Sprintf("%s delivers to exchange %s, the intake of %s", s.topic, show(s.exchange), next)
	}
	return "tasks would go round in a circle: " + strings.Join(steps, "; ")
}

// circles looks for a circle with a topic in it.
type circles struct {
	topics map[string]Topic
	at     map[string][]string // exchanges: the topics that take in from there
	goal   string
	seen   map[string]bool
}

// findCircle returns a circle with a topic, from its first topic by name on; nil if the topic
// is in none.
func findCircle(topics map[string]Topic, at map[string][]string, name string) circle {
	way := circles{topics, at, name, map[string]bool{}}.follow(name, nil)
	if way == nil {
		return nil
	}
	first := slices.MinFunc(way, func(a, b circleStep) int { return strings.Compare(a.topic, b.topic) })
	from := slices.Index(way, first)
	return slices.Concat(way[from:], way[:from])
}

// follow goes on from the end of a way to a topic. It returns the way back to the goal; nil
// if there is none.
func (c circles) follow(topic string, way circle) circle {
	c.seen[topic] = true
	exchange := c.topics[topic].Exchange
	way = append(way, circleStep{topic, exchange})
	for _, next := range c.at[exchange] {
		if next == topic { // its own document refuses that
			continue
		}
		if next == c.goal {
			return slices.Clone(way)
		}
		if c.seen[next] {
			continue
		}
		if found := c.follow(next, way); found != nil {
			return found
		}
	}
	return nil
}
