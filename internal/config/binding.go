package config

import "slices"

// Binding is a binding of a queue to an exchange with a routing key.
type Binding struct {
	Exchange, Queue, RoutingKey string
}

// LeftBindings returns bindings from earlier settings of a topic that still send its
// messages to another queue than the one declared now. They exist because scanners bind a
// new queue but never unbind the old one. An earlier binding counts if its routing key is
// the same as now, or if the exchange's type ignores keys. LeftBindings doesn't match
// the patterns of a topic exchange.
func LeftBindings(earlier []Topic, now Topic) (left []Binding) {
	for _, t := range earlier {
		if t.Declare == nil || now.Declare == nil || t.Exchange == "" || t.Exchange != now.Exchange ||
			t.Declare.Queue == now.Declare.Queue {
			continue
		}
		b := Binding{t.Exchange, t.Declare.Queue, t.RoutingKey}
		if (t.RoutingKey == now.RoutingKey || ignoresKeys(*now.Declare)) && !slices.Contains(left, b) {
			left = append(left, b)
		}
	}
	return left
}

// ignoresKeys reports whether the exchange sends every message to the declared queue,
// whatever its routing key.
func ignoresKeys(d Declare) bool { return d.Type == "fanout" || d.Type == "headers" }

// LeftIntake is the exchange of an earlier intake, with a queue that stays bound to it.
type LeftIntake struct {
	Exchange, Type, Queue string
	// Served is true if a topic's intake still takes messages from the exchange, by another
	// queue. Each message then arrives in both queues.
	Served bool
}

// Binding returns the binding that scanners made, with its arguments.
func (l LeftIntake) Binding() (b Binding, arguments map[string]any) {
	b = Binding{Exchange: l.Exchange, Queue: l.Queue}
	switch l.Type {
	case "topic":
		b.RoutingKey = "#"
	case "headers":
		arguments = map[string]any{"x-match": "all"}
	}
	return b, arguments
}

// LeftIntakes returns the intakes of earlier settings whose queue is no topic's intake.queue
// now. RabbitMQ still confirms what is published to their exchanges and puts it into these
// queues, and no scanner takes it.
func LeftIntakes(earlier []Topic, now map[string]Topic) (left []LeftIntake) {
	queues, exchanges := map[string]bool{}, map[string]bool{}
	for _, t := range now {
		if t.TakesIn() {
			queues[t.Intake.Queue], exchanges[t.Intake.Exchange] = true, true
		}
	}
	for _, t := range earlier {
		if !t.TakesIn() || queues[t.Intake.Queue] {
			continue
		}
		in := LeftIntake{t.Intake.Exchange, t.Intake.Type, t.Intake.Queue, exchanges[t.Intake.Exchange]}
		if !slices.Contains(left, in) {
			left = append(left, in)
		}
	}
	return left
}
