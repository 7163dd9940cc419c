package consumer

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Handle handles one delivery as Run does, for a program that receives deliveries on a
// channel of its own. It calls the handler in the caller's goroutine and stores what
// follows. Then it acks, requeues or rejects d by d.Acknowledger. Once ctx ends, it requeues
// d. A Consumer can handle several deliveries at once, while it runs and before.
//
// While Redis is away, Handle waits for it. If Redis refuses the calls for this delivery
// alone, Handle requeues it after ten minutes.
//
// Handle returns the outcome, as the label of duefleet_consumer_deliveries_total names it, or
// "rejected" for a message that isn't a task. It ignores URLs, Queue, Concurrency, Prefetch
// and StopTimeout. Give it Config.Redis: only Run closes a client made from Options.
func (c *Consumer) Handle(ctx context.Context, d amqp.Delivery) (outcome string) {
	c.store.Scripts().ForgetClock() // so that a retry is due by Redis's clock, to the millisecond
	w := &worker{c: c, stop: ctx, session: &session{acks: acks{channel: d.Acknowledger}}}
	return string(w.handle(ctx, d))
}
