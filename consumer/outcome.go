package consumer

import (
	"context"
	"errors"

	"github.com/duefleet/duefleet/task"
)

// Handler does the work of one task. See the package documentation for the meaning of its
// result; a panic counts as an error.
//
// ctx ends at the handler's deadline (Config.Timeout), or when a stopping consumer has
// waited for Config.StopTimeout.
//
// ctx carries the trace that the headers traceparent and tracestate name; package
// producer sets them. Retries and next steps keep these headers, so they belong to the
// trace of the call that scheduled the task. A span that the handler starts doesn't change
// that. A task that a handler schedules with ctx belongs to the trace of ctx.
type Handler func(ctx context.Context, d task.Delivery) error

// Park returns an error that parks the task at once, with err as the reason. `scanner
// parked ls` shows it, and `scanner parked replay` makes it due again.
func Park(err error) error { return &decision{err, park} }

// Drop returns an error that gives the task up for good: it is acked and counted.
func Drop(err error) error { return &decision{err, drop} }

// IsParked reports whether a handler's error is, or wraps, one from Park. It is for tests
// of handlers.
func IsParked(err error) bool { return decided(err) == park }

// IsDropped reports whether a handler's error is, or wraps, one from Drop. It is for
// tests of handlers.
func IsDropped(err error) bool { return decided(err) == drop }

// decision is an error that sets the outcome of a delivery.
type decision struct {
	err error
	as  outcome
}

func (d *decision) Error() string {
	if d.err == nil {
		return string(d.as)
	}
	return d.err.Error()
}

func (d *decision) Unwrap() error { return d.err }

// outcome of a delivery, as metrics name it.
type outcome string

const (
	done       outcome = "done"
	repeat     outcome = "repeated"      // done before: acked without the handler.
	retried    outcome = "retried"       // stored again.
	park       outcome = "parked"        // set aside.
	drop       outcome = "dropped"       // the handler gave it up.
	superseded outcome = "superseded"    // cancelled or replaced by the producer meanwhile.
	removed    outcome = "topic_removed" // its topic was removed: nothing follows.
	rejected   outcome = "rejected"      // to the queue's dead-letter exchange.
	requeued   outcome = "requeued"      // back to the queue, or left to the broker.
)

// decided returns the outcome that err sets, or "".
func decided(err error) outcome {
	var d *decision
	if errors.As(err, &d) {
		return d.as
	}
	return ""
}
