package intake

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
)

// ErrNotOurs says that another consumer has the queue of an intake, or that it is empty.
var ErrNotOurs = errors.New("no message came: the queue is empty, or a scanner takes messages from it")

// First refuses the first messages of an intake's queue because an operator says so. It needs
// the queue for itself: scanners leave it if Redis fails for half a minute, and while the topic
// is paused.
type First struct {
	Topic *shard.Topic
	// In is a connection to receive on, which stands still while a message is refused. Out is for
	// refused messages.
	In  Inbound
	Out Broker
	// Queue has the messages, and Refused is the exchange for those that are refused.
	Queue, Refused string
	// Reason is text for HeaderRefused.
	Reason string
	// Wait is how long a message may take to come.
	Wait time.Duration

	look time.Duration // until the latest term is read again; tests shorten it
}

// Refuse refuses up to n messages in the queue's order, and calls told for each. It returns when no
// more come within Wait; the error is ErrNotOurs if none came. A scanner that has read a refused
// message before no longer stores it.
func (f First) Refuse(ctx context.Context, n int, told func(*amqp.Delivery)) error {
	f.look = cmp.Or(f.look, defaultLook)
	until := time.Now().Add(f.Wait)
	err := shard.ErrStale
	for errors.Is(err, shard.ErrStale) { // only before the first one is refused
		err = f.consume(ctx, n, until, told)
	}
	return err
}

// consume is Refuse, with an end of the wait for the first message. The error is shard.ErrStale
// if a scanner began a term meanwhile. Like a session, it gets all messages that came back, so that
// they keep their order when it ends.
func (f First) consume(ctx context.Context, n int, until time.Time, told func(*amqp.Delivery)) error {
	if err := cmp.Or(connected(ctx, f.In), connected(ctx, f.Out)); err != nil {
		return err
	}
	one := oneByOne{tenure: tenure{topic: f.Topic}}
	if err := one.begin(ctx); err != nil {
		return err
	}
	consumer := "duefleet-first-" + rand.Text()
	forget := f.In.Watch(consumer, one.admit)
	closes := make(chan *amqp.Error, 1)
	channel, deliveries, err := f.open(ctx, consumer, closes)
	if err != nil {
		forget()
		return err
	}
	out := outbox{broker: f.Out}
	defer out.close()
	var acked amqpconn.Acked
	defer func() {
		one.end()
		retry.Sleep(context.WithoutCancel(ctx), acked.Rest())
		amqpconn.Within(closeTimeout, func() {
			_ = channel.Close() // it may be closed already
			forget()
		})
	}()
	for done := 0; done < n; {
		look := time.After(min(f.look, time.Until(until)))
		select {
		case d, open := <-deliveries:
			if !open {
				return closedBecause(closes)
			}
			if done == 0 {
				err = f.fence(ctx, one.before())
			}
			if err == nil {
				err = f.refuse(ctx, &out, &d)
			}
			if err != nil {
				return err
			}
			acked.Sent()
			told(&d)
			done, until = done+1, time.Now().Add(f.Wait)
			one.next()
		case <-look:
			switch {
			case time.Now().Before(until):
				one.look(ctx, func(ctx context.Context) error { return ping(ctx, channel, nil) })
			case done == 0:
				return ErrNotOurs
			default:
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// open opens a channel with a consumer.
func (f First) open(ctx context.Context, consumer string, closes chan *amqp.Error) (
	channel *amqp.Channel, deliveries <-chan amqp.Delivery, err error) {
	channel, err = f.In.Channel(ctx, func(ch *amqp.Channel) (err error) {
		ch.NotifyClose(closes)
		if err = ch.Qos(unacked, 0, false); err == nil {
			deliveries, err = ch.Consume(f.Queue, consumer, false, false, false, false, nil)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("consume from %q: %w", f.Queue, err)
	}
	return channel, deliveries, nil
}

// oneByOne admits a message once the one before is refused.
type oneByOne struct {
	tenure

	turn sync.Mutex
	busy bool // with a message
	shut bool
	free wake.Broadcast
}

func (o *oneByOne) admit(int, int) (admitted bool, later <-chan struct{}) {
	o.received()
	o.turn.Lock()
	defer o.turn.Unlock()
	if o.shut {
		return false, nil
	}
	if o.busy {
		return false, o.free.Next()
	}
	o.busy = true
	return true, nil
}

func (o *oneByOne) next() {
	o.turn.Lock()
	defer o.turn.Unlock()
	o.busy = false
	o.free.Fire()
}

func (o *oneByOne) end() {
	o.turn.Lock()
	defer o.turn.Unlock()
	o.shut = true
	o.free.Fire()
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
func (f First) fence(ctx context.Context, latest shard.Term) error {
	term, p, err := f.Topic.BeginTerm(ctx, latest)
	if err != nil {
		return err
	}
	return f.Topic.RaiseTerm(ctx, term, latest, p)
}
