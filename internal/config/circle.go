package config

import (
	"fmt"
	"slices"
	"strings"
)

// circle is a way of tasks from topic to topic, which ends where it begins.
type circle []circleStep

// circleStep is a topic and where it delivers to. With an empty exchange that is a queue.
type circleStep struct{ topic, exchange, queue string }

func (c circle) String() string {
	steps := make([]string, len(c))
	for i, s := range c {
		next := c[(i+1)%len(c)].topic
		to := "exchange " + show(s.exchange)
		if s.exchange == "" {
			to = "queue " + show(s.queue)
		}
		steps[i] = fmt.Sprintf("%s delivers to %s, the intake of %s", s.topic, to, next)
	}
	return "tasks would go round in a circle: " + strings.Join(steps, "; ")
}

// key returns the setting of the first topic's intake through which the circle closes.
func (c circle) key() string {
	if c[len(c)-1].exchange == "" {
		return "intake.queue"
	}
	return "intake.exchange"
}

// ways has the topics with an intake, by its exchange and by its queue.
type ways struct{ exchanges, queues map[string][]string }

// from returns the topics that take in what a topic delivers. Its own exchange is left out: the
// topic's document alone refuses that.
func (w ways) from(name string, t Topic) []string {
	if t.Exchange == "" { // AMQP's default exchange
		return w.queues[t.RoutingKey]
	}
	return slices.DeleteFunc(slices.Clone(w.exchanges[t.Exchange]), func(next string) bool { return next == name })
}

// circles looks for a circle with a topic in it.
type circles struct {
	topics map[string]Topic
	ways   ways
	goal   string
	seen   map[string]bool
}

// findCircle returns a circle with a topic, from its first topic by name on; nil if the topic
// is in none.
func findCircle(topics map[string]Topic, ways ways, name string) circle {
	way := circles{topics, ways, name, map[string]bool{}}.follow(name, nil)
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
	t := c.topics[topic]
	way = append(way, circleStep{topic, t.Exchange, t.RoutingKey})
	for _, next := range c.ways.from(topic, t) {
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
