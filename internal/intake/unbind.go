package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/retry"
)

// Abandoned is the binding of a queue that no intake uses any more.
type Abandoned struct {
	Exchange, Queue, RoutingKey string
	Arguments                   map[string]any
}

const (
	// servedFor is how long Unbind waits until nobody consumes from the queue. A scanner
	// leaves a removed topic within a second or two.
	servedFor = 15 * time.Second
	// lookEvery is the time between two looks.
	lookEvery = 250 * time.Millisecond
)

// Unbind removes the binding once nobody consumes from the queue, and returns how many
// messages lie in it. It waits up to 15s for that: a scanner that still serves the intake
// would make the binding again. A queue or binding that doesn't exist is no error.
func Unbind(ctx context.Context, b Broker, a Abandoned) (messages int, err error) {
	ctx, cancel := context.WithTimeout(ctx, servedFor)
	defer cancel()
	if err := connected(ctx, b); err != nil {
		return 0, err
	}
	for {
		consumers := 0
		channel, err := b.Channel(ctx, func(ch *amqp.Channel) error {
			found, err := ch.QueueDeclarePassive(a.Queue, true, false, false, false, nil)
			if consumers, messages = found.Consumers, found.Messages; err != nil || consumers > 0 {
				return err
			}
			return ch.QueueUnbind(a.Queue, a.RoutingKey, a.Exchange, a.Arguments)
		})
		if channel != nil {
			_ = channel.Close() // nothing is in flight
		}
		switch {
		case amqpconn.Refused(err, amqp.NotFound):
			return messages, nil
		case err != nil:
			return messages, fmt.Errorf("unbind queue %q from exchange %q: %w", a.Queue, a.Exchange, err)
		case consumers == 0:
			return messages, nil
		case !retry.Sleep(ctx, lookEvery):
			return messages, fmt.Errorf("queue %q still has %d consumers and stays bound to exchange %q", a.Queue, consumers,
				a.Exchange)
		}
	}
}

// connected waits until the connection is open.
func connected(ctx context.Context, b Broker) error {
	for {
		changed := b.Changed()
		open, _, reason := b.State()
		if open {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New(cmp.Or(reason, "RabbitMQ doesn't answer"))
		}
	}
}
