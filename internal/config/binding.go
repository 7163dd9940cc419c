package config

import "slices"

// Binding is of a queue to an exchange, for a key.
type Binding struct {
	Exchange, Queue, RoutingKey string
}

// LeftBindings returns the bindings that scanners made by earlier settings of a topic and
// that still take its messages to another queue than it declares now: scanners bind the
// new queue and unbind none. The same key is looked at alone, and of a fanout exchange
// every key; a pattern of a topic exchange isn't.
func LeftBindings(earlier []Topic, now Topic) (left []Binding) {
	for _, t := range earlier {
		if t.Declare == nil || now.Declare == nil || t.Exchange == "" || t.Exchange != now.Exchange || t.Declare.Queue == now.Declare.Queue {
			continue
		}
		b := Binding{t.Exchange, t.Declare.Queue, t.RoutingKey}
		if (t.RoutingKey == now.RoutingKey || now.Declare.Type == "fanout") && !slices.Contains(left, b) {
			left = append(left, b)
		}
	}
	return left
}
