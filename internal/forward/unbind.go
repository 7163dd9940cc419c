package forward

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// unbindTimeout bounds what unbinding asks of a broker.
const unbindTimeout = 30 * time.Second

// Binding is of a queue to an exchange, for a key.
type Binding struct {
	Exchange, Queue, RoutingKey string
}

// Unbind removes bindings at the first broker that answers. One that isn't there is no
// error. What lies in the queues stays there.
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

// unbind removes a binding. The broker closes the channel of a call that it refuses.
func (c *conn) unbind(b Binding) error {
	channel, err := c.amqp.Channel()
	if err != nil {
		return brokerError{err}
	}
	defer channel.Close()
	err = channel.QueueUnbind(b.Queue, b.RoutingKey, b.Exchange, nil)
	var refusal *amqp.Error
	if err == nil || errors.As(err, &refusal) && refusal.Code == amqp.NotFound { // the queue is gone, and its bindings with it
		return nil
	}
	return brokerError{err}
}
