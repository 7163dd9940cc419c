package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpframe"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// handle processes one delivery, and then acks, requeues or rejects it. work ends when a
// stopping consumer has waited for Config.StopTimeout.
func (w *worker) handle(work context.Context, d amqp.Delivery) outcome {
	c := w.c
	err := amqpframe.Unreadable(d.Headers)
	var t task.Task
	if err == nil {
		t, err = Parse(d)
	}
	if err != nil {
		c.reject(work, w.session, d, err)
		return rejected
	}
	w.handled = false
	_, next := d.Headers[shard.HeaderNext]
	became := w.process(work, &t, next)
	c.metrics.deliveries.WithLabelValues(t.Topic, string(became)).Inc()
	if became == requeued {
		err = w.session.acks.nack(d.DeliveryTag, true)
	} else {
		err = w.session.acks.ack(d.DeliveryTag)
	}
	if err != nil { // the connection is gone, and the broker delivers it again
		c.cfg.Log.DebugContext(work, "delivery not answered", "topic", t.Topic, "id", t.ID, "error", err)
		return became
	}
	c.cfg.step(stepAcked)
	return became
}

// reject sends a message that isn't a task to the queue's dead-letter exchange.
func (c *Consumer) reject(ctx context.Context, s *session, d amqp.Delivery, err error) {
	c.metrics.rejected.WithLabelValues(rejection(err)).Inc()
	c.refused.Log(ctx, "queue", c.cfg.Queue, "exchange", d.Exchange, "error", err)
	_ = s.acks.nack(d.DeliveryTag, false) // if the connection is gone, the broker delivers it again
}

// rejection returns the reason of a rejection, as the metric names it.
func rejection(err error) string {
	var unreadable *amqpframe.Error
	var header *HeaderError
	var rule *task.RuleError
	switch {
	case errors.As(err, &unreadable):
		return "unreadable"
	case errors.As(err, &header):
		return "header"
	case errors.As(err, &rule):
		return rule.Field
	}
	return "foreign"
}

// process calls the handler, unless the delivery was handled before or is superseded. Then
// it stores the retry or next step. A task whose payload is too large for this consumer is
// parked without calling the handler. next says that a consumer stored the task.
func (w *worker) process(work context.Context, t *task.Task, next bool) outcome {
	disposition := shard.Run
	err := w.retryUntil(work, t, "look_up", func() (err error) {
		if err = w.c.store.served(work, t.Topic); err == nil {
			disposition, err = w.c.store.begin(work, t, next)
		}
		return err
	})
	switch {
	case err != nil:
		return requeued
	case disposition == shard.Done:
		return repeat
	case disposition == shard.Over:
		w.c.say(work, t, slog.LevelInfo, "delivery acked without its handler: the task was cancelled or replaced")
		return superseded
	case w.replaced:
		return requeued // another worker took this one's place
	}
	if n := len(t.Payload); n > w.c.cfg.MaxPayload {
		return w.conclude(work, t, parking(t, fmt.Errorf("payload of %d bytes is above the consumer's MaxPayload of %d", n,
			w.c.cfg.MaxPayload)))
	}
	w.handled = true
	ctx, span := w.c.startProcess(work, t)
	step, err := w.c.run(ctx, t)
	w.c.cfg.step(stepHandled)
	if err != nil && work.Err() != nil {
		endProcess(span, requeued, err)
		return requeued // the handler was cut short, which doesn't count as an attempt
	}
	result := w.c.decide(t, step, err)
	endProcess(span, result.became, result.cause)
	return w.conclude(work, t, result)
}

// run calls the handler with its deadline within ctx, and returns the next step that it asked for.
func (c *Consumer) run(ctx context.Context, t *task.Task) (next *following, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	c.metrics.running.Inc()
	defer c.busy.add(t)()
	began := time.Now()
	defer func() {
		c.metrics.running.Dec()
		c.metrics.seconds.WithLabelValues(t.Topic).Observe(time.Since(began).Seconds())
		if r := recover(); r != nil {
			c.metrics.panics.WithLabelValues(t.Topic).Inc()
			c.say(ctx, t, slog.LevelError, "handler panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	d := task.NewDelivery(*t, func(due time.Time, payload []byte) error {
		next = &following{step: true, when: task.At(due), local: due, least: c.cfg.MinStep, payload: payload}
		return nil
	}).WithNextWhen(func(when task.When, payload []byte) error {
		next = &following{step: true, when: when, least: c.cfg.MinStep, payload: payload}
		return nil
	})
	d = d.WithMaxPayload(c.cfg.MaxPayload).WithLastAttempt(func(err error) bool { return c.last(t, err) })
	err = c.cfg.Handler(ctx, d)
	return next, err
}

// result says how a delivery ended and which record to store for it.
type result struct {
	became outcome
	follow *following // the retry or next step to store, or the task to park; nil: nothing
	cause  error      // why the task failed; nil if it didn't
}

// decide returns the result of a handler that asked for a next step and returned err.
func (c *Consumer) decide(t *task.Task, next *following, err error) result {
	if err == nil {
		return result{became: done, follow: next}
	}
	switch d := decided(err); d.as {
	case drop:
		return result{became: drop, cause: err}
	case park:
		return parking(t, err)
	case postponed:
		f := failed(t, err)
		f.attempts, f.when, f.least = t.Attempt-1, task.In(d.wait), c.cfg.MinStep
		return result{became: postponed, follow: f, cause: err}
	}
	delay, again, broken := c.cfg.Policy.call(*t, err)
	switch {
	case broken != nil:
		return parking(t, fmt.Errorf("%w; the attempt failed: %w", broken, err))
	case !again:
		return parking(t, err)
	}
	f := failed(t, err)
	f.when = task.In(delay)
	return result{became: retried, follow: f, cause: err}
}

// errUnknown stands for an error that the handler doesn't know yet.
var errUnknown = errors.New("not known before the attempt ends")

// last reports whether the task isn't tried again if its handler returns err.
func (c *Consumer) last(t *task.Task, err error) bool {
	if err == nil {
		err = errUnknown
	}
	became := c.decide(t, nil, err).became
	return became == park || became == drop
}

// parking returns the result of a task that is to be parked.
func parking(t *task.Task, cause error) result {
	f := failed(t, cause)
	f.park = true
	return result{became: park, follow: f, cause: cause}
}

func failed(t *task.Task, cause error) *following {
	return &following{attempts: t.Attempt, reason: cause.Error(), payload: t.Payload}
}

// conclude stores what follows, and then remembers the delivery. In this order, a crash in
// between repeats the delivery and loses nothing. conclude doesn't remember a parked task,
// because its replay has the same due time.
func (w *worker) conclude(work context.Context, t *task.Task, r result) outcome {
	stored := true
	if r.follow != nil {
		var err error
		stored, err = w.allowNext(work, t, *r.follow)
		switch {
		case errors.Is(err, errRemoved):
			r.became = removed
		case err != nil:
			return requeued
		case !stored && r.became != done:
			r.became = superseded
		}
	}
	w.c.report(work, t, r, stored)
	if r.became == park {
		w.c.tellParked(work, t, r.cause)
		return park
	}
	err := w.retryUntil(work, t, "remember", func() error { return w.c.store.done(work, t) })
	w.c.cfg.step(stepRemembered)
	if err != nil {
		return requeued
	}
	return r.became
}

// allowNext stores f. It returns false if the producer has changed the task since, and
// errRemoved if the topic was removed.
func (w *worker) allowNext(work context.Context, t *task.Task, f following) (stored bool, err error) {
	var at permit
	err = w.retryUntil(work, t, "look_up", func() (err error) {
		at, err = w.c.store.allow(work, t, f)
		return err
	})
	w.c.cfg.step(stepAllowed)
	if err != nil || !at.allowed {
		return false, err
	}
	f.op = shard.NewOp()
	err = w.retryUntil(work, t, "store", func() (err error) {
		stored, err = w.c.store.storeNext(work, t, f, at)
		return err
	})
	w.c.cfg.step(stepStored)
	return stored, err
}
