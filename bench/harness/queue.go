package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Classic and Quorum are queue types.
const (
	Classic = "classic"
	Quorum  = "quorum"
)

// Queue declares a durable queue, and an exchange and a routing key with the same name.
// It is deleted when the run is closed.
func (r *Run) Queue(name, queueType string) (string, error) {
	return r.declare(name, amqp.Table{amqp.QueueTypeArg: queueType})
}

// DelayQueue declares a queue whose messages move to another queue after a delay.
func (r *Run) DelayQueue(to string, delay time.Duration) (string, error) {
	return r.declare(to+"-delay", amqp.Table{
		amqp.QueueTypeArg: Classic, amqp.QueueMessageTTLArg: delay.Milliseconds(),
		"x-dead-letter-exchange": to, "x-dead-letter-routing-key": to,
	})
}

func (r *Run) declare(name string, args amqp.Table) (string, error) {
	name = fmt.Sprintf("%s-%d", name, r.runs.Add(1))
	err := r.channel(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(name, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			return err
		}
		return ch.QueueBind(name, name, name, false, nil)
	})
	if err != nil {
		return "", fmt.Errorf("declare queue %s: %w", name, err)
	}
	r.Defer(func() error { return r.DeleteQueue(name) })
	return name, nil
}

// DeleteQueue deletes a queue and its exchange, if they exist.
func (r *Run) DeleteQueue(name string) error {
	return r.channel(func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(name, false, false, false)
		return errors.Join(err, ch.ExchangeDelete(name, false, false))
	})
}

// Purge deletes a queue's ready messages.
func (r *Run) Purge(name string) error {
	return r.channel(func(ch *amqp.Channel) error {
		_, err := ch.QueuePurge(name, false)
		return err
	})
}

// Queued returns the number of ready messages in a queue.
func (r *Run) Queued(name string) (n int, err error) {
	err = r.channel(func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		n = q.Messages
		return err
	})
	return n, err
}

// BrokerConnections returns the number of connections to RabbitMQ. The harness has none of its own,
// except while it consumes, or publishes without a scanner.
func (r *Run) BrokerConnections(ctx context.Context) (int, error) {
	list, err := r.rabbitmq.Ctl(ctx, "--no-table-headers", "list_connections", "pid")
	if err != nil {
		return 0, err
	}
	return strings.Count(list, "<"), nil
}

// AwaitQueued returns the number of messages in a queue. The broker's count is late, so
// AwaitQueued waits up to ten seconds until it reaches want. A smaller number is no
// error.
func (r *Run) AwaitQueued(ctx context.Context, name string, want int) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = Poll(ctx, 200*time.Millisecond, func() (bool, error) {
		n, err = r.Queued(name)
		return n >= want, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return n, err
}

func (r *Run) channel(do func(*amqp.Channel) error) error {
	conn, err := amqp.Dial(r.URL())
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return do(ch)
}
