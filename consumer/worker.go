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

// worker handles one delivery at a time. There are Concurrency workers. In addition there
// are replaced workers; a replaced worker ends after its current delivery.
type worker struct {
	c        *Consumer
	stop     context.Context //nolint:containedctx // ends when the consumer stops, like Run's
	handled  bool            // the handler of its delivery has run
	session  *session        // of its delivery
	replace  func()          // starts another worker; nil in Handle
	replaced bool
}

// start starts a worker.
func (c *Consumer) start(ctx, work context.Context, feed <-chan *session, workers *sync.WaitGroup) {
	w := &worker{c: c, stop: ctx, replace: func() { c.start(ctx, work, feed, workers) }}
	workers.Go(func() { w.work(ctx, work, feed) })
}

// work handles the deliveries of one session after the other.
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
				if _ = w.handle(work, d); w.replaced {
					return
				}
			}
		}
	}
}

// giveBack requeues a delivery. If the connection is lost, the broker requeues it.
func (w *worker) giveBack(d amqp.Delivery) { _ = w.session.acks.nack(d.DeliveryTag, true) }

// retryUntil retries an operation on Redis until it succeeds or work ends. Meanwhile it
// occupies a handler's place, so the queue waits: no handler runs whose result could
// neither be remembered nor stored.
//
// An error that concerns only this topic, shard or task doesn't block others: another
// worker takes this one's place. After Config.hold retryUntil returns the error, and the
// caller requeues the delivery.
//
// Once the consumer stops, retryUntil returns every error at once. One exception: if the
// handler has run and Redis is away, it keeps trying to store the result.
func (w *worker) retryUntil(work context.Context, t *task.Task, operation string, try func() error) error {
	pause := retry.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	var held time.Time // when an unbroken series of own errors began
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

// pause waits for the next try, or until the consumer stops.
func (w *worker) pause(work context.Context, pause *retry.Backoff) {
	if w.stop.Err() == nil {
		work = w.stop
	}
	pause.Wait(work)
}

// complain logs the failed operation, by the kind of its error.
func (c *Consumer) complain(ctx context.Context, t *task.Task, operation string, err error) {
	switch {
	case errors.Is(err, task.ErrUnknownTopic):
		c.unknown.Log(ctx, append(c.place(), "topic", t.Topic, "id", t.ID, "operation", operation, "error", err)...)
	case own(err):
		c.refusedOne.Log(ctx, "topic", t.Topic, "id", t.ID, "operation", operation, "error", err)
	default:
		c.unstored.Log(ctx, append(c.place(), "operation", operation, "error", err)...)
	}
}

// place returns the log attributes that say where this consumer looks for topics.
func (c *Consumer) place() []any {
	addr, db := c.store.Place()
	return []any{"redis", addr, "db", db, "prefix", c.cfg.Prefix, "queue", c.cfg.Queue}
}

// giveWay starts another worker in place of this one, once.
func (w *worker) giveWay() {
	if !w.replaced && w.replace != nil {
		w.replaced = true
		w.replace()
	}
}

// own reports whether an error concerns one topic, shard or task, so that others can go
// on. It is false for errors that concern every call, and for errors that end by
// themselves.
func own(err error) bool {
	var format *shard.FormatError
	switch {
	case errors.Is(err, task.ErrUnknownTopic), errors.Is(err, task.ErrForked), errors.As(err, &format):
		return true
	case !shard.Definite(err):
		return false
	}
	for _, prefix := range []string{"NOAUTH", "WRONGPASS", "MISCONF", "NOREPLICAS", "max number of clients",
		"ERR max number of clients"} {
		if redis.HasErrorPrefix(err, prefix) {
			return false
		}
	}
	return true
}
