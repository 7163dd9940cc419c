package harness

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
	f.Queue = due
	err = Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		_, err := r.Queued(name)
		if refused := (*amqp.Error)(nil); errors.As(err, &refused) && refused.Code == amqp.NotFound {
			return false, nil
		}
		return err == nil, err
	})
	return f, name, errors.Join(err, f.Stop())
}

// Traffic is messages for an intake.
type Traffic struct {
	Messages iter.Seq[amqp.Publishing]
	// Count is the number of messages, Stored the number of tasks that they leave behind.
	Count, Stored int
}

// firstTaken is the number of the first task of a Traffic. Tasks of a Load have smaller
// ones.
const firstTaken = 1_000_000_000

// Schedules returns n messages that are due in an hour, each with an ID of its own.
func Schedules(n int) Traffic {
	return Traffic{Count: n, Stored: n, Messages: func(yield func(amqp.Publishing) bool) {
		for number := range n {
			if !yield(scheduled(number)) {
				return
			}
		}
	}}
}

// Growing returns small messages, and behind them large ones with payloads of that size. All
// are due in an hour, each with an ID of its own.
func Growing(small, large, bytes int) Traffic {
	return Traffic{Count: small + large, Stored: small + large, Messages: func(yield func(amqp.Publishing) bool) {
		for number := range small + large {
			m := scheduled(number)
			if number >= small {
				m.Body = SizedTask(firstTaken+number, time.Time{}, bytes).Payload
			}
			if !yield(m) {
				return
			}
		}
	}}
}

// Mixed returns messages that schedule n tasks, move each and cancel each. The three verbs
// alternate. Three batches lie between two messages of one ID.
func Mixed(n int) Traffic {
	const apart = intakeBatch
	return Traffic{Count: 3 * n, Messages: func(yield func(amqp.Publishing) bool) {
		for step := range n + 2*apart {
			number := step
			for _, message := range []func(int) amqp.Publishing{scheduled, moved, cancelled} {
				if number >= 0 && number < n && !yield(message(number)) {
					return
				}
				number -= apart
			}
		}
	}}
}

func scheduled(number int) amqp.Publishing {
	t := NewTask(firstTaken+number, time.Time{})
	m := Message(t.ID(), t.Payload)
	m.Headers = amqp.Table{"x-delay": int32(time.Hour / time.Millisecond)}
	return m
}

func moved(number int) amqp.Publishing {
	m := Message(Task{Number: firstTaken + number}.ID(), nil)
	m.Headers = amqp.Table{"x-duefleet-verb": "move", "x-delay": int32(2 * time.Hour / time.Millisecond)}
	return m
}

func cancelled(number int) amqp.Publishing {
	m := Message(Task{Number: firstTaken + number}.ID(), nil)
	m.Headers = amqp.Table{"x-duefleet-verb": "cancel"}
	return m
}

// TakeIn fills the intake of a stopped fleet and starts the fleet. It returns the rate in
// messages per second. wrong is by how many tasks Redis differs from what the messages
// should leave behind. begun, if not nil, is called when the first
// task is stored.
func (f *Fleet) TakeIn(ctx context.Context, intake string, t Traffic, begun func() error) (rate float64, wrong int,
	err error) {
	if err := f.run.FillIntake(ctx, intake, t); err != nil {
		return 0, 0, err
	}
	started := make(chan error, 1)
	go func() { started <- f.Start(ctx) }()
	first, err := f.awaitStored(ctx, func(n int) bool { return n > 0 })
	begin := time.Now()
	if err == nil {
		err = call(begun)
	}
	if err != nil {
		return 0, 0, errors.Join(err, <-started)
	}
	last, err := f.awaitStored(ctx, func(n int) bool { return n == t.Stored })
	rate = float64(t.Count-first) / time.Since(begin).Seconds()
	return rate, max(last, t.Stored) - min(last, t.Stored), errors.Join(err, <-started)
}

// awaitStored waits until enough tasks are stored, and returns how many are.
func (f *Fleet) awaitStored(ctx context.Context, enough func(n int) bool) (stored int, err error) {
	err = Poll(ctx, 5*time.Millisecond, func() (bool, error) {
		n, err := f.Pending(ctx)
		stored = int(n)
		return enough(stored), err
	})
	return stored, err
}

// BareIntake declares a queue like an intake's and fills it.
func (r *Run) BareIntake(ctx context.Context, t Traffic) (queue string, err error) {
	queue, err = r.declare("bare-intake", amqp.Table{
		amqp.QueueTypeArg: Quorum, amqp.SingleActiveConsumerArg: true,
	})
	if err != nil {
		return "", err
	}
	return queue, r.FillIntake(ctx, queue, t)
}

// TakeBare takes n messages from a queue of BareIntake, over one connection and with only
// the AMQP library. It returns the messages per second, from the first delivery to the
// last acknowledgement. No consumer that acknowledges should be faster.
func (r *Run) TakeBare(ctx context.Context, queue string, n int) (rate float64, err error) {
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
	return rate, err
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

// FillIntake publishes messages to an intake.
func (r *Run) FillIntake(ctx context.Context, exchange string, t Traffic) error {
	p, err := NewPublisher(r.URL(), exchange)
	if err != nil {
		return err
	}
	batch := make([]amqp.Publishing, 0, bareWindow)
	for m := range t.Messages {
		if batch = append(batch, m); len(batch) < bareWindow {
			continue
		}
		if err := p.Publish(ctx, batch...); err != nil {
			return errors.Join(err, p.Close())
		}
		batch = batch[:0]
	}
	return errors.Join(p.Publish(ctx, batch...), p.Close())
}
