package harness

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/fleet"
)

// intakeBatch is how many messages a scanner takes in at once, and how many messages the
// bare consumer acknowledges at once. Both have up to two batches unacknowledged.
const intakeBatch = 500

// StartIntake starts one scanner with a topic that has an intake, and stops it after it
// declared the intake. It returns the fleet and the name of the intake's exchange and
// queue.
func (r *Run) StartIntake(ctx context.Context) (*Fleet, string, error) {
	name := fmt.Sprintf("intake-%d", r.runs.Add(1))
	due, refused := name+".due", name+".refused"
	r.Defer(func() error { return errors.Join(r.DeleteQueue(due), r.DeleteQueue(name), r.DeleteQueue(refused)) })
	f, err := r.StartFleet(ctx, FleetConfig{Scanners: 1, Topic: fleet.Topic{
		"exchange": due, "routing_key": due,
		"declare": map[string]any{"type": "direct", "queue": due, "queue_type": Classic},
		"intake":  map[string]any{"exchange": name, "type": "topic", "queue": name},
	}})
	if err != nil {
		return nil, "", err
	}
	err = Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		_, err := r.Queued(name)
		if refused := (*amqp.Error)(nil); errors.As(err, &refused) && refused.Code == amqp.NotFound {
			return false, nil
		}
		return err == nil, err
	})
	return f, name, errors.Join(err, f.Stop())
}

// TakeIn fills the intake of a stopped fleet with n messages that are due in an hour, and
// starts the fleet. It returns the rate at which Redis received them, in messages per
// second, and how many messages are missing in Redis. begun, if not nil, is called when
// the first are stored.
func (f *Fleet) TakeIn(ctx context.Context, intake string, n int, begun func() error) (rate float64, missing int,
	err error) {
	if err := f.run.fillIntake(ctx, intake, n); err != nil {
		return 0, 0, err
	}
	started := make(chan error, 1)
	go func() { started <- f.start(ctx) }()
	first, err := f.awaitStored(ctx, 1)
	begin := time.Now()
	if err == nil {
		err = call(begun)
	}
	if err != nil {
		return 0, 0, errors.Join(err, <-started)
	}
	last, err := f.awaitStored(ctx, int64(n))
	rate = float64(last-first) / time.Since(begin).Seconds()
	return rate, n - int(last), errors.Join(err, <-started)
}

// awaitStored waits until at least n tasks are stored, and returns how many are.
func (f *Fleet) awaitStored(ctx context.Context, n int64) (stored int64, err error) {
	err = Poll(ctx, 5*time.Millisecond, func() (bool, error) {
		stored, err = f.pending(ctx)
		return stored >= n, err
	})
	return stored, err
}

// TakeBare takes n messages from a queue like an intake's, over one connection and with
// only the AMQP library. It returns the messages per second, from the first delivery to
// the last acknowledgement. No consumer that acknowledges should be faster.
func (r *Run) TakeBare(ctx context.Context, n int) (rate float64, err error) {
	queue, err := r.declare("bare-intake", amqp.Table{
		amqp.QueueTypeArg: Quorum, amqp.SingleActiveConsumerArg: true,
	})
	if err != nil {
		return 0, err
	}
	if err := r.fillIntake(ctx, queue, n); err != nil {
		return 0, err
	}
	err = r.channel(func(ch *amqp.Channel) error {
		if err := ch.Qos(2*intakeBatch, 0, false); err != nil {
			return err
		}
		messages, err := ch.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		rate, err = takeBare(messages, n)
		return err
	})
	return rate, errors.Join(err, r.DeleteQueue(queue))
}

func takeBare(messages <-chan amqp.Delivery, n int) (rate float64, err error) {
	var begin time.Time
	for i := range n {
		m, ok := <-messages
		if !ok {
			return 0, fmt.Errorf("consume: %w", amqp.ErrClosed)
		}
		if i == 0 {
			begin = time.Now()
		}
		if (i+1)%intakeBatch == 0 || i+1 == n {
			if err := m.Ack(true); err != nil {
				return 0, fmt.Errorf("acknowledge: %w", err)
			}
		}
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

// fillIntake publishes n messages that are due in an hour, each with an ID of its own.
func (r *Run) fillIntake(ctx context.Context, exchange string, n int) error {
	p, err := NewPublisher(r.URL(), exchange)
	if err != nil {
		return err
	}
	for from := 0; from < n; from += bareWindow {
		tasks := Tasks(from, min(from+bareWindow, n), time.Time{})
		messages := make([]amqp.Publishing, len(tasks))
		for i, t := range tasks {
			messages[i] = Message(t.ID(), t.Payload)
			messages[i].Headers = amqp.Table{"x-delay": int32(time.Hour / time.Millisecond)}
		}
		if err := p.Publish(ctx, messages...); err != nil {
			return errors.Join(err, p.Close())
		}
	}
	return p.Close()
}
