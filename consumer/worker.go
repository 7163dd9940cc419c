package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// worker handles one delivery at a time. There are Concurrency of them, and those that
// were replaced: a replaced worker ends with the delivery it has.
type worker struct {
	c        *Consumer
	session  *session // that its delivery came from
	replace  func()   // starts another worker
	replaced bool
}

// start starts a worker.
func (c *Consumer) start(ctx, work context.Context, feed <-chan *session, workers *sync.WaitGroup) {
	w := &worker{c: c, replace: func() { c.start(ctx, work, feed, workers) }}
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
func (w *worker) insist(work context.Context, t *task.Task, operation string, try func() error) error {
	pause := newPause()
	var held time.Time // since when, by an error of its own
	for {
		err := try()
		if err == nil || work.Err() != nil || errors.Is(err, errRemoved) {
			return err
		}
		w.c.metrics.errors.WithLabelValues(operation).Inc()
		if !own(err) {
			w.c.unstored.Say(work, "operation", operation, "error", err)
			held = time.Time{}
		} else {
			w.c.refusedOne.Say(work, "topic", t.Topic, "id", t.ID, "operation", operation, "error", err)
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
		pause.Wait(work)
	}
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
