package doctor

import (
	"context"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/topicdocs"
)

// examineLeft reports queues that earlier documents of a topic declared and that still
// exist. AMQP can't tell whether they are still bound.
func (p Target) examineLeft(ctx context.Context, r *report, b *broker, name string, t config.Topic) {
	if p.Consul == nil || t.Declare == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	h, err := p.Consul.History(ctx, name)
	if err != nil {
		return // only this check needs the permission to read it
	}
	for _, left := range topicdocs.LeftBindings(h, t) {
		var found amqp.Queue
		err := b.ask(func(ch *amqp.Channel) (err error) {
			found, err = ch.QueueDeclarePassive(left.Queue, true, false, false, false, nil)
			return err
		})
		if err != nil {
			continue
		}
		r.warn("topic "+name+" old queue", fmt.Sprintf("%s; then delete %s when it is empty",
			p.command("topic set "+name+" --unbind-old"), left.Queue),
			"queue %s, which an earlier document declared, is still there, with %d messages and %d consumers; AMQP can't "+
				"tell whether it is still bound to exchange %s for key %s: if it is, each task arrives there and in %s",
			left.Queue, found.Messages, found.Consumers, left.Exchange, left.RoutingKey, t.Declare.Queue)
	}
}
