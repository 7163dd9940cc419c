package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Conflict is a mistake that topics make together, while each document alone is good.
type Conflict struct {
	// Topic is the first one by name whose intake takes part, and Key is the setting of its
	// intake to change.
	Topic, Key string
	// Problem names all topics that take part.
	Problem string
}

// Error returns the problem.
func (c Conflict) Error() string { return c.Problem }

// Conflicts returns what is wrong with topics together. Tasks would go round in a circle if
// each topic delivers to the exchange or the queue of the next one's intake. An intake's queue, and its
// queue for refused messages, belong to one topic alone.
//
// With names it returns only conflicts in which one of these topics takes part.
func Conflicts(topics map[string]Topic, names ...string) (found []Conflict) {
	about := func(topic string) bool { return len(names) == 0 || slices.Contains(names, topic) }
	return append(circleConflicts(topics, about), queueConflicts(topics, about)...)
}

func circleConflicts(topics map[string]Topic, about func(topic string) bool) (found []Conflict) {
	to := ways{map[string][]string{}, map[string][]string{}}
	takers := slices.Sorted(maps.Keys(topics))
	takers = slices.DeleteFunc(takers, func(name string) bool { return !topics[name].TakesIn() })
	for _, name := range takers {
		in := topics[name].Intake
		to.exchanges[in.Exchange] = append(to.exchanges[in.Exchange], name)
		to.queues[in.Queue] = append(to.queues[in.Queue], name)
	}
	known := map[string]bool{} // topics in a circle that was found
	for _, name := range takers {
		if known[name] || !about(name) {
			continue
		}
		way := findCircle(topics, to, name)
		for _, step := range way {
			known[step.topic] = true
		}
		if way != nil {
			found = append(found, Conflict{way[0].topic, way.key(), way.String()})
		}
	}
	return found
}

// queueUse is a topic's use of a queue.
type queueUse struct {
	topic  string
	intake bool
	as     string
}

// forRefused is the use of the queue that a topic's intake puts refused messages into.
const forRefused = "the queue for refused messages"

// queueUses returns the queues that topics name, with the topics by name.
func queueUses(topics map[string]Topic) map[string][]queueUse {
	uses := map[string][]queueUse{}
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		add := func(queue string, intake bool, as string) {
			if queue != "" {
				uses[queue] = append(uses[queue], queueUse{name, intake, as})
			}
		}
		t := topics[name]
		if t.TakesIn() && t.Intake.Queue != "" {
			add(t.Intake.Queue, true, "intake.queue")
			add(t.Intake.Refused(), true, forRefused)
		}
		if t.Declare != nil {
			add(t.Declare.Queue, false, "declare.queue")
			add(t.Declare.DeadLetter, false, "declare.dead_letter")
		}
	}
	return uses
}

func queueConflicts(topics map[string]Topic, about func(topic string) bool) (found []Conflict) {
	uses := queueUses(topics)
	for _, queue := range slices.Sorted(maps.Keys(uses)) {
		all := uses[queue]
		if !mixed(all) || !slices.ContainsFunc(all, func(u queueUse) bool { return about(u.topic) }) {
			continue
		}
		texts := make([]string, len(all))
		for i, u := range all {
			texts[i] = u.as + " of " + u.topic
		}
		first := all[slices.IndexFunc(all, func(u queueUse) bool { return u.intake })].topic
		found = append(found, Conflict{first, "intake.queue", fmt.Sprintf("topics would share queue %s, which an intake "+
			"needs alone: it is %s; give each topic an intake.queue of its own", show(queue), strings.Join(texts, " and "))})
	}
	return found
}

// mixed reports whether several topics use a queue, and an intake is one of the uses. It
// returns false if all uses are queues for refused messages: these topics also share their
// intake.queue.
func mixed(all []queueUse) bool {
	is := func(does func(u queueUse) bool) bool { return slices.ContainsFunc(all, does) }
	return is(func(u queueUse) bool { return u.intake }) && is(func(u queueUse) bool { return u.topic != all[0].topic }) &&
		is(func(u queueUse) bool { return u.as != forRefused })
}
