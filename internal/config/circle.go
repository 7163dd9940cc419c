package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// CircleError says that topics would send tasks round in a circle. Each delivers to the
// exchange of the next one's intake, and the last begins again with the first.
type CircleError []circleStep

type circleStep struct{ topic, exchange string }

func (e CircleError) Error() string {
	steps := make([]string, len(e))
	for i, s := range e {
		next := e[(i+1)%len(e)].topic
		steps[i] = fmt.Sprintf("%s delivers to exchange %s, the intake of %s", s.topic, show(s.exchange), next)
	}
	return "tasks would go round in a circle: " + strings.Join(steps, "; ")
}

// circles looks for circles among topics.
type circles struct {
	topics map[string]Topic
	at     map[string][]string // exchanges: the topics that take in from there
	seen   map[string]bool
}

// FindCircle returns the first circle among topics, by name; nil if there is none.
func FindCircle(topics map[string]Topic) CircleError {
	c := circles{topics: topics, at: map[string][]string{}, seen: map[string]bool{}}
	var takers []string
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		if t := topics[name]; t.TakesIn() {
			takers = append(takers, name)
			c.at[t.Intake.Exchange] = append(c.at[t.Intake.Exchange], name)
		}
	}
	for _, name := range takers {
		if found := c.follow(name, nil); found != nil {
			return found
		}
	}
	return nil
}

// follow goes on from the end of a way to a topic. It returns the part of the way that is a
// circle; nil if there is none.
func (c circles) follow(topic string, way CircleError) CircleError {
	if from := slices.IndexFunc(way, func(s circleStep) bool { return s.topic == topic }); from >= 0 {
		return way[from:]
	}
	if c.seen[topic] {
		return nil
	}
	exchange := c.topics[topic].Exchange
	way = append(way, circleStep{topic, exchange})
	for _, next := range c.at[exchange] {
		if next == topic {
			continue // its own document refuses that
		}
		if found := c.follow(next, way); found != nil {
			return found
		}
	}
	c.seen[topic] = true
	return nil
}
