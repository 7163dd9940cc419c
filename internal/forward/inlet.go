package forward

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/amqpframe"
)

// Inlet is a queue that gets every message published to an exchange, and a place for
// messages that are refused.
type Inlet struct {
	// Exchange that clients publish to, and its type: topic, fanout or headers.
	Exchange, Type string
	// Queue with a single active consumer.
	Queue string
	// Refused is an exchange and the queue bound to it.
	Refused string
	// Canary is an exchange that nobody publishes to. RabbitMQ deletes it with Exchange, which a
	// publisher may declare again without the binding of Queue. It exists only with Declare.
	Canary string
	// Declare makes all of it, durable. Otherwise it must exist.
	Declare bool
}

const (
	argSingleActive  = "x-single-active-consumer"
	argDeliveryLimit = "x-delivery-limit"
	// noDeliveryLimit is the highest number that every version accepts. RabbitMQ 4.0 and
	// later dead-letter a message after 20 deliveries by default. A message is delivered
	// again each time a scanner can't reach Redis.
	noDeliveryLimit = int32(1<<31 - 1)
)

// Watch lets admit decide, for a new consumer tag, which messages come with their bodies and
// properties and which wait, until the caller calls forget.
func (c *Connection) Watch(consumer string, admit amqpframe.Admit) (forget func()) {
	return c.gate.Watch(consumer, admit)
}

// Channel opens a channel of the caller's own, and prepare makes it ready. Both take little
// longer than the connect timeout at most. While the connection can't be used, the error
// says why.
func (c *Connection) Channel(ctx context.Context, prepare func(*amqp.Channel) error) (*amqp.Channel, error) {
	conn, reason := c.open()
	if conn == nil {
		return nil, errors.New(reason)
	}
	channel, err := conn.channel(ctx, c.cfg.ConnectTimeout, prepare)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, c.cfg.Advice(err.Error()))
	}
	return channel, nil
}

// Changed returns a channel that is closed when the connection is opened or lost, or when
// RabbitMQ blocks it or stops blocking it. Call it before State or Channel.
func (c *Connection) Changed() <-chan struct{} { return c.changed.Next() }

// FrameMax returns the most bytes that a frame may have, as the connected broker said; 0 without a
// connection.
func (c *Connection) FrameMax() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return 0
	}
	return c.conn.limits().frame
}

// Prepare makes the inlet's exchanges, queues and bindings, or checks that they exist.
func (in Inlet) Prepare(channel *amqp.Channel) error {
	if in.Declare {
		return in.declare(channel)
	}
	for _, name := range []string{in.Exchange, in.Refused} {
		if err := channel.ExchangeDeclarePassive(name, in.Type, true, false, false, false, nil); err != nil {
			return fmt.Errorf("check exchange %q: %w", name, amqpconn.Brief(err))
		}
	}
	for _, name := range []string{in.Queue, in.Refused} {
		if _, err := channel.QueueDeclarePassive(name, true, false, false, false, nil); err != nil {
			return fmt.Errorf("check queue %q: %w", name, amqpconn.Brief(err))
		}
	}
	return nil
}

// declare makes the queue before its binding, and the binding last: what is published then
// reaches a consumer.
func (in Inlet) declare(channel *amqp.Channel) error {
	quorum := &Declare{QueueType: queueTypeValue, DeadLetter: in.Refused}
	if err := quorum.declareDeadLetter(channel); err != nil {
		return err
	}
	args := quorum.arguments()
	args[argSingleActive], args[argDeliveryLimit] = true, noDeliveryLimit
	if _, err := channel.QueueDeclare(in.Queue, true, false, false, false, args); err != nil {
		return fmt.Errorf("declare queue %q: %w", in.Queue, amqpconn.Brief(err))
	}
	if err := channel.ExchangeDeclare(in.Exchange, in.Type, true, false, false, false, nil); err != nil {
		return fmt.Errorf("declare exchange %q: %w%s", in.Exchange, amqpconn.Brief(err), in.typeAdvice(err))
	}
	if err := channel.ExchangeDeclare(in.Canary, amqp.ExchangeFanout, true, true, true, false, nil); err != nil {
		return fmt.Errorf("declare exchange %q: %w", in.Canary, amqpconn.Brief(err))
	}
	if err := in.bindCanary(channel); err != nil {
		return err
	}
	return in.bindQueue(channel)
}

// Bind binds the queue to the exchange, and the queue for refused messages to its own. A
// binding that exists is no error. If the exchange was deleted since Prepare, the error is a 404, also
// if somebody has declared it again.
func (in Inlet) Bind(channel *amqp.Channel) error {
	if err := bindDeadLetter(channel, in.Refused); err != nil {
		return err
	}
	if err := in.bindQueue(channel); err != nil {
		return err
	}
	return in.bindCanary(channel)
}

// bindCanary makes the canary's only binding. With it RabbitMQ deletes the canary.
func (in Inlet) bindCanary(channel *amqp.Channel) error {
	err := channel.ExchangeBind(in.Exchange, "", in.Canary, false, nil)
	switch {
	case amqpconn.Refused(err, amqp.NotFound):
		return fmt.Errorf("exchange %q was deleted and declared again; what was published to it meanwhile is lost: %w",
			in.Exchange, amqpconn.Brief(err))
	case err != nil:
		return fmt.Errorf("bind exchange %q to exchange %q: %w", in.Canary, in.Exchange, amqpconn.Brief(err))
	}
	return nil
}

func (in Inlet) bindQueue(channel *amqp.Channel) error {
	key, match := in.everything()
	if err := channel.QueueBind(in.Queue, key, in.Exchange, false, match); err != nil {
		return fmt.Errorf("bind queue %q to exchange %q: %w", in.Queue, in.Exchange, amqpconn.Brief(err))
	}
	return nil
}

// everything returns the binding that gives a queue every message of the exchange.
func (in Inlet) everything() (key string, match amqp.Table) {
	switch in.Type {
	case amqp.ExchangeTopic:
		return "#", nil
	case amqp.ExchangeHeaders:
		return "", amqp.Table{"x-match": "all"} // all of no headers
	}
	return "", nil
}

// typeAdvice returns advice if the exchange exists as another type, to append to the error.
func (in Inlet) typeAdvice(err error) string {
	if !amqpconn.Refused(err, amqp.PreconditionFailed) {
		return ""
	}
	return "; an exchange keeps its type: set intake.exchange to another name, or delete the exchange once nobody " +
		"publishes to it"
}
