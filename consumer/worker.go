package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// worker handles one delivery at a time. There are Concurrency of them, and those that
// were replaced: a replaced worker ends with the delivery it has.
type worker struct {
	c        *Consumer
	stop     context.Context //nolint:containedctx // ends when the consumer is to stop, like Run's
	handled  bool            // the handler of its delivery has run
	session  *session        // that its delivery came from
	replace  func()          // starts another worker
	replaced bool
}

// start starts a worker.
func (c *Consumer) start(ctx, work context.Context, feed <-chan *session, workers *sync.WaitGroup) {
	w := &worker{c: c, stop: ctx, replace: func() { c.start(ctx, work, feed, workers) }}
	workers.Go(func() { w.work(ctx, work, feed) })
}

// work handles what one session after the other delivers.
func (w *worker) work(ctx, work context.Context, feed <-chan *session) {
	for {
		select {
		case <-ctx.Done():
			return
		case w.session = <-feed:
			for d := range w.session.deliveries {
				if ctx.Err() != nil {
					w.giveBack(d)
					continue
				}
				if w.handle(work, d); w.replaced {
					return
				}
			}
		}
	}
}

// giveBack requeues a delivery; if the connection is gone, the broker does.
func (w *worker) giveBack(d amqp.Delivery) { _ = w.session.acks.nack(d.DeliveryTag, true) }

// insist tries an operation on Redis until it succeeds or work ends. It holds up
// one handler's place meanwhile, and so the queue: nothing is handled that could
// be neither remembered nor stored.
//
// An error of this topic or this task alone holds up no others: another worker takes
// the place. After Config.hold the error is returned, and the delivery is requeued.
//
// Once the consumer is to stop, only the result of a handler is worth waiting for, and
// only while Redis is away: else the error is returned at once.
func (w *worker) insist(work context.Context, t *task.Task, operation string, try func() error) error {
	pause := newPause()
	var held time.Time // since when, by an error of its own
	for {
		err := try()
		if err == nil || work.Err() != nil || errors.Is(err, errRemoved) {
			return err
		}
		w.c.metrics.errors.WithLabelValues(operation).Inc()
		w.c.complain(work, t, operation, err)
		if w.stop.Err() != nil && (own(err) || !w.handled) {
			return err
		}
		if !own(err) {
			held = time.Time{}
		} else {
			if held.IsZero() {
				held = time.Now()
			}
			if time.Since(held) >= w.c.cfg.hold {
				return err
			}
			w.giveWay()
		}
		if w.replaced && w.session.channel.IsClosed() {
			return err // the broker delivers it again
		}
		w.pause(work, &pause)
	}
}

// pause waits for the next try, or until the consumer is to stop.
func (w *worker) pause(work context.Context, pause *retry.Backoff) {
	if w.stop.Err() == nil {
		work = w.stop
	}
	pause.Wait(work)
}

// complain logs why Redis can't be used, or what it refuses.
func (c *Consumer) complain(ctx context.Context, t *task.Task, operation string, err error) {
	switch {
	case errors.Is(err, task.ErrUnknownTopic):
		c.unknown.Say(ctx, append(c.place(), "topic", t.Topic, "id", t.ID, "operation", operation, "error", err)...)
	case own(err):
		c.refusedOne.Say(ctx, "topic", t.Topic, "id", t.ID, "operation", operation, "error", err)
	default:
		c.unstored.Say(ctx, append(c.place(), "operation", operation, "error", err)...)
	}
}

// place is where this consumer looks for topics and their tasks.
func (c *Consumer) place() []any {
	addr, db := c.store.Place()
	return []any{"redis", addr, "db", db, "prefix", c.cfg.Prefix, "queue", c.cfg.Queue}
}

// giveWay has another worker take this one's place.
func (w *worker) giveWay() {
	if !w.replaced {
		w.replaced = true
		w.replace()
	}
}

// own reports whether an error is of one topic, shard or task: the others can go on.
// What Redis refuses to everybody, and what is over by itself, is no such error.
func own(err error) bool {
	var format *shard.FormatError
	switch {
	case errors.Is(err, task.ErrUnknownTopic), errors.Is(err, task.ErrForked), errors.As(err, &format):
		return true
	case !shard.Definite(err):
		return false
	}
	for _, prefix := range []string{"NOAUTH", "WRONGPASS", "MISCONF", "NOREPLICAS", "max number of clients", "ERR max number of clients"} {
		if redis.HasErrorPrefix(err, prefix) {
			return false
		}
	}
	return true
}
