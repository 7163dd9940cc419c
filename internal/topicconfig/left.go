package topicconfig

import (
	"context"
	"fmt"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
)

// earlier returns the settings of a topic's history that scanners could have applied.
func earlier(h consul.History) (topics []config.Topic) {
	for _, change := range h.Changes {
		if doc := config.ParseDocument(h.Topic, change.Document, 0); !change.Removed && !change.Dropped && doc.Err == nil {
			topics = append(topics, doc.Topic)
		}
	}
	return topics
}

// LeftBindings returns the bindings that earlier documents in a topic's history made and
// that its present settings don't.
func LeftBindings(h consul.History, now config.Topic) []config.Binding {
	return config.LeftBindings(earlier(h), now)
}

// LeftIntakes returns the intakes in a topic's history that none of the topics has now.
func LeftIntakes(h consul.History, topics map[string]config.Topic) []config.LeftIntake {
	return config.LeftIntakes(earlier(h), topics)
}

// LeftText says what a left intake does with messages, without the advice.
func LeftText(l config.LeftIntake) string {
	if l.Served {
		return fmt.Sprintf("queue %s stays bound to exchange %s, so that each message published there also arrives in this "+
			"queue, and no scanner takes it", l.Queue, l.Exchange)
	}
	return fmt.Sprintf("queue %s stays bound to exchange %s: RabbitMQ confirms what is still published there, and no "+
		"scanner takes it", l.Queue, l.Exchange)
}

// UnbindCommand returns the command that removes a left intake's binding in a vhost.
func UnbindCommand(l config.LeftIntake, vhost string) string {
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

func deleteBinding(b config.Binding, vhost, key string) string {
	return fmt.Sprintf("rabbitmqadmin -V %s delete binding source=%s destination_type=queue destination=%s "+
		"properties_key=%s", vhost, b.Exchange, b.Queue, key)
}

// Left has the bindings that earlier documents of a topic left at the broker.
type Left struct {
	Bindings []config.Binding
	Intakes  []config.LeftIntake
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
	left := Left{LeftBindings(h, doc.Topic), LeftIntakes(h, topics)}
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
