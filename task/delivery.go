package task

import "time"

// Delivery is a task that is passed to its handler.
type Delivery struct {
	Task
	next       func(due time.Time, payload []byte) error
	nextWhen   func(when When, payload []byte) error
	last       func(err error) bool
	maxPayload int
}

// NewDelivery returns a delivery of t. Package consumer uses it, and so do tests of
// handlers. Next calls next with its arguments. NextWhen calls it too, with a due time
// computed from the local clock. A nil next makes both return ErrNoNext. Next and
// NextWhen check their arguments first, with DefaultMaxPayload as the limit.
func NewDelivery(t Task, next func(due time.Time, payload []byte) error) Delivery {
	d := Delivery{Task: t, next: next, maxPayload: DefaultMaxPayload}
	if next != nil {
		d.nextWhen = func(when When, payload []byte) error { return next(when.Time(time.Now()), payload) }
	}
	return d
}

// WithNextWhen returns a copy of d whose NextWhen calls the given function.
func (d Delivery) WithNextWhen(next func(when When, payload []byte) error) Delivery {
	d.nextWhen = next
	return d
}

// WithMaxPayload returns a copy of d that limits the payload of a next step to limit
// bytes; see consumer.Config.MaxPayload.
func (d Delivery) WithMaxPayload(limit int) Delivery {
	d.maxPayload = limit
	return d
}

// WithLastAttempt returns a copy of d whose LastAttempt calls the given function.
func (d Delivery) WithLastAttempt(last func(err error) bool) Delivery {
	d.last = last
	return d
}

// LastAttempt reports whether the task isn't tried again if its handler returns err. It asks
// consumer.Config.Policy. A nil err stands for an error that the policy doesn't know. It is
// false for a delivery made with NewDelivery alone.
func (d Delivery) LastAttempt(err error) bool { return d.last != nil && d.last(err) }

// NextWhen asks for the next step of the same task. The step has the same topic, ID and
// headers, trace headers included; its attempts count from 1.
//
// The step is stored after the handler returned nil and before the delivery is acked. It
// isn't stored if the handler fails, or if the producer has cancelled or replaced the
// task since. If a handler calls Next and NextWhen several times, the last call wins.
//
// A delay of In starts when the step is stored, by Redis's clock. A step is due at least
// consumer.Config.MinStep after it is stored, 100ms by default.
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

// Next is like NextWhen, for a time by the handler's own clock. Prefer NextWhen: if this
// clock is wrong, a step can be late by the same amount. It is never early. Two times are
// computed: due by Redis's clock, and Redis's now plus the time left until due by the
// handler's clock. The step is due at the later one.
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
