package topicconfig

import (
	"context"
	"fmt"
	"slices"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
)

// Binding is a binding of a queue to an exchange with a routing key.
type Binding struct {
	Exchange, Queue, RoutingKey string
}

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

// Earlier returns the settings of a topic's history that scanners could have applied.
func Earlier(h consul.History) (topics []config.Topic) {
	for _, change := range h.Changes {
		if doc := config.ParseDocument(h.Topic, change.Document, 0); !change.Removed && !change.Dropped && doc.Err == nil {
			topics = append(topics, doc.Topic)
		}
	}
	return topics
}

// LeftBindings returns bindings from earlier settings of a topic that still send its
// messages to another queue than the one declared now. They exist because scanners bind a
// new queue but never unbind the old one. An earlier binding counts if its routing key is
// the same as now, or if the exchange's type ignores keys. LeftBindings doesn't match
// the patterns of a topic exchange.
func LeftBindings(earlier []config.Topic, now config.Topic) (left []Binding) {
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
func ignoresKeys(d config.Declare) bool { return d.Type == "fanout" || d.Type == "headers" }

// LeftIntakes returns the intakes of earlier settings whose queue is no topic's intake.queue
// now. RabbitMQ still confirms what is published to their exchanges and puts it into these
// queues, and no scanner takes it.
func LeftIntakes(earlier []config.Topic, now map[string]config.Topic) (left []LeftIntake) {
	if !slices.ContainsFunc(earlier, config.Topic.TakesIn) {
		return nil
	}
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

// LeftText says what a left intake does with messages, without the advice.
func LeftText(l LeftIntake) string {
	if l.Served {
		return fmt.Sprintf("queue %s stays bound to exchange %s, so that each message published there also arrives in this "+
			"queue, and no scanner takes it", l.Queue, l.Exchange)
	}
	return fmt.Sprintf("queue %s stays bound to exchange %s: RabbitMQ confirms what is still published there, and no "+
		"scanner takes it", l.Queue, l.Exchange)
}

// UnbindCommand returns the command that removes a left intake's binding in a vhost.
func UnbindCommand(l LeftIntake, vhost string) string {
	b, arguments := l.Binding()
	key := b.RoutingKey
	switch {
	case len(arguments) > 0:
		return fmt.Sprintf("rabbitmqadmin -V %s list bindings source destination properties_key; then %s", vhost,
			deleteBinding(b, vhost, "KEY"))
	case key == "":
		key = "~"
	}
	return deleteBinding(b, vhost, "'"+key+"'")
}

func deleteBinding(b Binding, vhost, key string) string {
	return fmt.Sprintf("rabbitmqadmin -V %s delete binding source=%s destination_type=queue destination=%s "+
		"properties_key=%s", vhost, b.Exchange, b.Queue, key)
}

// Left has the bindings that earlier documents of a topic left at the broker.
type Left struct {
	Bindings []Binding
	Intakes  []LeftIntake
}

// UnbindOld removes the bindings that earlier documents of a topic left, with unbind. It
// returns them with the present document.
func (d Documents) UnbindOld(ctx context.Context, topic string, fleet Fleet,
	unbind func(context.Context, Left) error) (config.Document, Left, error) {
	h, doc, err := d.History(ctx, topic)
	switch {
	case err != nil:
		return doc, Left{}, fmt.Errorf("topic %s: the queues that were declared before can't be read: %w", topic, err)
	case doc.Index == 0:
		return doc, Left{}, NoDocumentError(topic)
	case doc.Err != nil:
		return doc, Left{}, fmt.Errorf("topic %s: its document has mistakes, nothing was unbound: %w", topic, doc.Err)
	}
	topics, err := d.Topics(ctx)
	earlier := Earlier(h)
	left := Left{LeftBindings(earlier, doc.Topic), LeftIntakes(earlier, topics)}
	if err != nil || len(left.Bindings)+len(left.Intakes) == 0 {
		return doc, Left{}, err
	}
	if err = mayUnbind(ctx, fleet, doc); err == nil {
		err = unbind(ctx, left)
	}
	if err != nil {
		return doc, Left{}, fmt.Errorf("topic %s: %w", topic, err)
	}
	return doc, left, nil
}

// Topics returns the settings of all good documents, by topic.
func (d Documents) Topics(ctx context.Context) (map[string]config.Topic, error) {
	list, err := d.List(ctx)
	topics := make(map[string]config.Topic, len(list))
	for _, doc := range list {
		topics[doc.Name] = doc.Topic
	}
	return topics, err
}

// mayUnbind returns an error unless all live scanners have applied the document. A scanner
// that hasn't could bind an old queue again, and without any the new queue may not be bound
// yet.
func mayUnbind(ctx context.Context, fleet Fleet, doc config.Document) error {
	why, err := fleet.Applied(ctx, doc.Name, doc.Index)
	if err != nil {
		return fmt.Errorf("nothing was unbound, because it isn't known whether scanners apply the document: %w", err)
	}
	if why != "" {
		return fmt.Errorf("nothing was unbound, because not all scanners apply the document: %s; then try again: "+
			"scanner topic set %s --unbind-old", why, doc.Name)
	}
	return nil
}
