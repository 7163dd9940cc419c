package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

// ErrNotOurs says that another consumer has the queue of an intake, or that it is empty.
var ErrNotOurs = errors.New("no message came: the queue is empty, or a scanner takes messages from it")

// First refuses the first messages of an intake's queue because an operator says so. It needs
// the queue for itself: scanners leave it if Redis fails for half a minute, and while the topic
// is paused.
type First struct {
	Topic *shard.Topic
	// Broker is a connection that receives and publishes.
	Broker Broker
	// Queue has the messages, and Refused is the exchange for those that are refused.
	Queue, Refused string
	// Reason is text for HeaderRefused.
	Reason string
	// Wait is how long a message may take to come.
	Wait time.Duration
}

// Refuse refuses up to n messages in the queue's order, and calls told for each. It returns when no
// more come within Wait; the error is ErrNotOurs if none came. A scanner that has read a refused
// message before no longer stores it.
func (f First) Refuse(ctx context.Context, n int, told func(*amqp.Delivery)) error {
	if err := connected(ctx, f.Broker); err != nil {
		return err
	}
	var deliveries <-chan amqp.Delivery
	closes := make(chan *amqp.Error, 1)
	channel, err := f.Broker.Channel(ctx, func(ch *amqp.Channel) (err error) {
		ch.NotifyClose(closes)
		if err = ch.Qos(1, 0, false); err == nil {
			deliveries, err = ch.Consume(f.Queue, "", false, false, false, false, nil)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("consume from %q: %w", f.Queue, err)
	}
	out := outbox{broker: f.Broker}
	defer out.close()
	var acked amqpconn.Acked
	defer func() {
		retry.Sleep(context.WithoutCancel(ctx), acked.Rest())
		amqpconn.Within(closeTimeout, func() { _ = channel.Close() }) // it may be closed already
	}()
	for done := range n {
		select {
		case d, open := <-deliveries:
			if !open {
				return closedBecause(closes)
			}
			if done == 0 {
				err = f.fence(ctx, channel)
			}
			if err == nil {
				err = f.refuse(ctx, &out, &d)
			}
			if err != nil {
				return err
			}
			acked.Sent()
			told(&d)
		case <-time.After(f.Wait):
			if done == 0 {
				return ErrNotOurs
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (f First) refuse(ctx context.Context, out *outbox, d *amqp.Delivery) error {
	it := &item{delivery: d, refusal: &refusal{refusedOperator, errors.New(f.Reason)}}
	if err := out.refuse(ctx, batch{it}, f.Refused); err != nil {
		return fmt.Errorf("send the message to exchange %q: %w", f.Refused, err)
	}
	return d.Ack(false)
}

// fence begins a term as a session does, and shows it to the shards. So a scanner that stalls with
// the same messages can't store them afterwards.
func (f First) fence(ctx context.Context, channel *amqp.Channel) error {
	term, p, err := f.Topic.BeginTerm(ctx)
	if err != nil {
		return err
	}
	if err := channel.Qos(1, 0, false); err != nil { // it is answered, so the queue was ours when the term began
		return err
	}
	return f.Topic.RaiseTerm(ctx, term, p)
}
