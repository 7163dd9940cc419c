package forward

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
)

// unbindTimeout bounds Unbind.
const unbindTimeout = 30 * time.Second

// Binding is a binding of a queue to an exchange with a routing key.
type Binding struct {
	Exchange, Queue, RoutingKey string
}

// Unbind removes bindings at the first broker that answers. A binding that doesn't exist
// is no error. Messages in the queues stay there.
func Unbind(ctx context.Context, cfg Config, bindings []Binding) error {
	ctx, cancel := context.WithTimeout(ctx, unbindTimeout)
	defer cancel()
	c, err := New(cfg)
	if err != nil {
		return err
	}
	conn, err := c.dialAny(ctx)
	if err != nil {
		return err
	}
	defer conn.close()
	defer context.AfterFunc(ctx, conn.close)()
	for _, b := range bindings {
		if err := conn.unbind(b); err != nil {
			return fmt.Errorf("unbind queue %q from exchange %q: %w%s", b.Queue, b.Exchange, err, c.cfg.Advice(err.Error()))
		}
	}
	return nil
}

// unbind removes a binding. If the broker refuses, it also closes the channel.
func (c *conn) unbind(b Binding) error {
	channel, err := c.link.AMQP.Channel()
	if err != nil {
		return amqpconn.Brief(err)
	}
	defer channel.Close()
	err = channel.QueueUnbind(b.Queue, b.RoutingKey, b.Exchange, nil)
	if err == nil || amqpconn.Refused(err, amqp.NotFound) { // the queue is gone, and its bindings with it
		return nil
	}
	return amqpconn.Brief(err)
}
