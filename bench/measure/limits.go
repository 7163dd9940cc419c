package measure

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/bench/harness"
)

// direct publishes tasks at once, with a due time of now.
type direct struct {
	publisher *harness.Publisher
	// delay is a delay that the broker adds; zero: none.
	delay time.Duration
}

// Schedule returns when the broker has confirmed the messages.
func (d direct) Schedule(ctx context.Context, tasks []harness.Task) error {
	messages := make([]amqp.Publishing, len(tasks))
	for i, t := range tasks {
		t = harness.NewTask(t.Number, time.Now().Add(d.delay))
		messages[i] = harness.Message(t.ID(), t.Payload)
	}
	return d.publisher.Publish(ctx, messages...)
}

// directLateness measures publishing and consuming without any delay.
func directLateness(queueType, subject string) latenessOf {
	return func(ctx context.Context, r *harness.Run, load harness.Load, s *Results) error {
		queue, err := r.Queue("direct-"+queueType, queueType)
		if err != nil {
			return err
		}
		p, err := harness.NewPublisher(r.URL(), queue)
		if err != nil {
			return err
		}
		load.From, load.To, load.For = 0, 0, min(load.For, 5*time.Second) // without delays it needs no more time
		t := trial{subject: subject, system: direct{publisher: p}, queue: queue, meters: meters{broker(r), ourselves()},
			patience: patience}
		return errors.Join(t.run(ctx, r, load, s), p.Close())
	}
}

// fixedDelay measures RabbitMQ's own delay: messages move from a queue with a TTL to
// another queue. All delays of one queue are the same, because an expired message would
// wait behind one that hasn't expired.
func fixedDelay(ctx context.Context, r *harness.Run, load harness.Load, s *Results) error {
	const delay = time.Second
	queue, err := r.Queue("expired", harness.Classic)
	if err != nil {
		return err
	}
	waiting, err := r.DelayQueue(queue, delay)
	if err != nil {
		return err
	}
	p, err := harness.NewPublisher(r.URL(), waiting)
	if err != nil {
		return err
	}
	load.From, load.To = delay, delay
	t := trial{subject: "RabbitMQ: TTL and dead-lettering, all delays 1 s", system: direct{publisher: p, delay: delay},
		queue: queue, patience: patience}
	return errors.Join(t.run(ctx, r, load, s), p.Close())
}
