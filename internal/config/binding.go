package config

import "slices"

// Binding is a binding of a queue to an exchange with a routing key.
type Binding struct {
	Exchange, Queue, RoutingKey string
}

// LeftBindings returns bindings from earlier settings of a topic that still send its
// messages to another queue than the one declared now. They exist because scanners bind a
// new queue but never unbind the old one. An earlier binding counts if its routing key is
// the same as now, or if the exchange is a fanout exchange. LeftBindings doesn't match
// the patterns of a topic exchange.
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
