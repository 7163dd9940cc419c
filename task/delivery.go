package task

import "time"

// Delivery is a task in the hands of its handler.
type Delivery struct {
	Task
	next       func(due time.Time, payload []byte) error
	nextWhen   func(when When, payload []byte) error
	maxPayload int
}

// NewDelivery puts a delivery together: package consumer does, and tests of handlers,
// which learn through next what the handler asks for with Next, and with NextWhen as seen
// from the test's clock. It may be nil. Next and NextWhen keep to the rules of
// input, with DefaultMaxPayload, before they call it.
func NewDelivery(t Task, next func(due time.Time, payload []byte) error) Delivery {
	d := Delivery{Task: t, next: next, maxPayload: DefaultMaxPayload}
	if next != nil {
		d.nextWhen = func(when When, payload []byte) error { return next(when.Time(time.Now()), payload) }
	}
	return d
}

// WithNextWhen returns the delivery with what NextWhen calls, in place of next.
func (d Delivery) WithNextWhen(next func(when When, payload []byte) error) Delivery {
	d.nextWhen = next
	return d
}

// WithMaxPayload returns the delivery with the largest payload of a next step, in bytes:
// consumer.Config.MaxPayload.
func (d Delivery) WithMaxPayload(limit int) Delivery {
	d.maxPayload = limit
	return d
}

// NextWhen asks for the next step of the same task: under the same topic and ID, with
// the same headers, those of its trace included, its attempts counted from 1. It is stored once the handler has
// returned nil, and before the delivery is acked; not if the handler fails, and not
// if the producer has cancelled or replaced the task since. The last call counts, of
// Next and NextWhen together.
//
// In counts from when the step is stored, by Redis's clock. A step is due at least
// consumer.Config.MinStep after it is stored, 100ms unless set.
//
// Errors: *RuleError for a due time or a payload that breaks a rule, and ErrNoNext.
func (d Delivery) NextWhen(when When, payload []byte) error {
	if d.nextWhen == nil {
		return ErrNoNext
	}
	if err := d.check(when, payload); err != nil {
		return err
	}
	return d.nextWhen(when, payload)
}

// Next is NextWhen for an instant of the handler's own clock. Prefer NextWhen: a clock
// that is wrong makes a step late by as much. It makes none early: due is read by
// Redis's clock, and as the time left until due by the consumer's, and the later counts.
func (d Delivery) Next(due time.Time, payload []byte) error {
	if d.next == nil {
		return ErrNoNext
	}
	if err := d.check(At(due), payload); err != nil {
		return err
	}
	return d.next(due, payload)
}

func (d Delivery) check(when When, payload []byte) error {
	if err := CheckWhen(when, time.Now()); err != nil {
		return err
	}
	return CheckPayload(payload, d.maxPayload)
}
