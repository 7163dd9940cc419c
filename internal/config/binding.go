package config

import "slices"

// Binding is a binding of a queue to an exchange with a routing key.
type Binding struct {
	Exchange, Queue, RoutingKey string
}

// LeftBindings returns bindings from earlier settings of a topic that still send its
// messages to another queue than the one declared now. They exist because scanners bind a
// new queue but unbind none. It compares only equal keys, or for a fanout exchange all
// keys. It doesn't match patterns of a topic exchange.
func LeftBindings(earlier []Topic, now Topic) (left []Binding) {
	for _, t := range earlier {
		if t.Declare == nil || now.Declare == nil || t.Exchange == "" || t.Exchange != now.Exchange ||
			t.Declare.Queue == now.Declare.Queue {
			continue
		}
		b := Binding{t.Exchange, t.Declare.Queue, t.RoutingKey}
		if (t.RoutingKey == now.RoutingKey || now.Declare.Type == "fanout") && !slices.Contains(left, b) {
			left = append(left, b)
		}
	}
	return left
}
