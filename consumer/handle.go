package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// handle brings one delivery to its end. work ends when the consumer has waited
// long enough for its handlers.
func (c *Consumer) handle(work context.Context, s *session, d amqp.Delivery) {
	t, err := Parse(d)
	if err == nil {
		err = task.CheckPayload(t.Payload, c.cfg.MaxPayload)
	}
	if err != nil {
		c.reject(work, s, d, err)
		return
	}
	became := c.process(work, &t)
	c.metrics.deliveries.WithLabelValues(t.Topic, string(became)).Inc()
	if became == requeued {
		err = s.acks.nack(d.DeliveryTag, true)
	} else {
		err = s.acks.ack(d.DeliveryTag)
	}
	if err != nil { // the connection is gone, and the broker delivers it again
		c.cfg.Log.DebugContext(work, "delivery not answered", "topic", t.Topic, "id", t.ID, "error", err)
		return
	}
	c.cfg.step(stepAcked)
}

// reject sends what is no task to the queue's dead-letter exchange.
func (c *Consumer) reject(ctx context.Context, s *session, d amqp.Delivery, err error) {
	c.metrics.rejected.WithLabelValues(rejection(err)).Inc()
	c.refused.Say(ctx, "queue", c.cfg.Queue, "exchange", d.Exchange, "error", err)
	_ = s.acks.nack(d.DeliveryTag, false) // if the connection is gone, it comes again
}

// rejection is why, in a word.
func rejection(err error) string {
	var header *HeaderError
	var rule *task.RuleError
	switch {
	case errors.As(err, &header):
		return "header"
	case errors.As(err, &rule):
		return rule.Field
	}
	return "foreign"
}

// process runs the handler unless that was done, and stores what follows.
func (c *Consumer) process(work context.Context, t *task.Task) outcome {
	standing := shard.Run
	err := c.insist(work, "look_up", func() (err error) {
		standing, err = c.store.begin(work, t)
		return err
	})
	switch {
	case err != nil:
		return requeued
	case standing == shard.Done:
		return repeat
	case standing == shard.Over:
		return over
	}
	next, err := c.run(work, t)
	c.cfg.step(stepHandled)
	if err != nil && work.Err() != nil {
		return requeued // it was cut short: no attempt
	}
	became, f := c.decide(t, next, err)
	became, err = c.conclude(work, t, became, f)
	if err != nil {
		return requeued
	}
	return became
}

// run calls the handler under its deadline, and returns the step it asked for.
func (c *Consumer) run(work context.Context, t *task.Task) (next *following, err error) {
	ctx, cancel := context.WithTimeout(withTrace(work, t.Headers), c.cfg.Timeout)
	defer cancel()
	c.metrics.running.Inc()
	began := time.Now()
	defer func() {
		c.metrics.running.Dec()
		c.metrics.seconds.WithLabelValues(t.Topic).Observe(time.Since(began).Seconds())
		if r := recover(); r != nil {
			c.metrics.panics.WithLabelValues(t.Topic).Inc()
			c.panicked.Say(ctx, "topic", t.Topic, "id", t.ID, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	err = c.cfg.Handler(ctx, task.NewDelivery(*t, func(due time.Time, payload []byte) error {
		if err := errors.Join(task.CheckDue(due, time.Now()), task.CheckPayload(payload, c.cfg.MaxPayload)); err != nil {
			return err
		}
		next = &following{due: due, payload: payload}
		return nil
	}))
	return next, err
}

// decide says what becomes of a delivery, and what follows it, if anything.
func (c *Consumer) decide(t *task.Task, next *following, err error) (outcome, *following) {
	if err == nil {
		return done, next
	}
	if decided(err) == drop {
		return drop, nil
	}
	f := &following{attempts: t.Attempt, reason: err.Error(), payload: t.Payload}
	delay, again := c.cfg.Policy(t.Attempt)
	if decided(err) == park || !again {
		f.park = true
		return park, f
	}
	f.after = max(delay, 0)
	return retried, f
}

// conclude stores what follows and remembers the delivery, in this order, so that
// a crash in between repeats it. What is parked is not remembered: its replay has
// the same due.
func (c *Consumer) conclude(work context.Context, t *task.Task, became outcome, f *following) (outcome, error) {
	if f != nil {
		stored, err := c.follow(work, t, *f)
		if err != nil {
			return became, err
		}
		if !stored && became != done {
			became = over
		}
	}
	c.say(work, t, became, f)
	if became == park {
		return became, nil
	}
	err := c.insist(work, "remember", func() error { return c.store.done(work, t) })
	c.cfg.step(stepRemembered)
	return became, err
}

// follow stores f, unless the producer has changed the task since.
func (c *Consumer) follow(work context.Context, t *task.Task, f following) (stored bool, err error) {
	var due int64
	var allowed bool
	err = c.insist(work, "look_up", func() (err error) {
		due, allowed, err = c.store.allow(work, t, f)
		return err
	})
	c.cfg.step(stepAllowed)
	if err != nil || !allowed {
		return false, err
	}
	err = c.insist(work, "store", func() (err error) {
		stored, err = c.store.put(work, t, f, due)
		return err
	})
	c.cfg.step(stepStored)
	return stored, err
}

// say logs what an operator may have to look at.
func (c *Consumer) say(ctx context.Context, t *task.Task, became outcome, f *following) {
	switch became {
	case park:
		c.parked.Say(ctx, "topic", t.Topic, "id", t.ID, "attempts", t.Attempt, "reason", f.reason)
	case retried:
		c.cfg.Log.DebugContext(ctx, "task is tried again", "topic", t.Topic, "id", t.ID, "attempt", t.Attempt, "reason", f.reason)
	}
}

// insist tries an operation on Redis until it succeeds or work ends. It holds up
// one handler's place meanwhile, and so the queue: nothing is handled that could
// be neither remembered nor stored.
func (c *Consumer) insist(work context.Context, operation string, try func() error) error {
	pause := newPause()
	for {
		err := try()
		if err == nil || work.Err() != nil {
			return err
		}
		c.metrics.errors.WithLabelValues(operation).Inc()
		c.unstored.Say(work, "operation", operation, "error", err)
		pause.Wait(work)
	}
}
