package consumer

import (
	"context"
	"errors"

	"github.com/duefleet/duefleet/task"
)

// Handler does the work of one task. Its context ends with its deadline
// (Config.Timeout), or when a consumer that stops has waited long enough, and
// carries the trace that the headers traceparent and tracestate name: package producer
// sets them. Retries and next steps keep the headers, so all of them belong to the trace
// of the call that scheduled the task, also a step that a handler asks for within a span
// of its own. A task that a handler schedules with its context belongs to it, too.
// See the package for what a handler returns; a panic is an error.
type Handler func(ctx context.Context, d task.Delivery) error

// Park is the error that parks a task at once, with err as the reason: `scanner
// parked ls` shows it and `scanner parked replay` makes it due again.
func Park(err error) error { return &decision{err, park} }

// Drop is the error that gives a task up for good: it is acked and counted.
func Drop(err error) error { return &decision{err, drop} }

// IsParked reports whether a handler's error parks its task: it is, or wraps, one of Park.
// It is for tests of handlers.
func IsParked(err error) bool { return decided(err) == park }

// IsDropped reports whether a handler's error gives its task up: it is, or wraps, one of
// Drop. It is for tests of handlers.
func IsDropped(err error) bool { return decided(err) == drop }

// decision is an error that says what is to be done.
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
	done     outcome = "done"
	repeat   outcome = "repeated"      // done before: acked without the handler
	retried  outcome = "retried"       // stored again
	park     outcome = "parked"        // stored aside
	drop     outcome = "dropped"       // given up by the handler
	over     outcome = "superseded"    // cancelled or replaced by the producer meanwhile
	removed  outcome = "topic_removed" // its topic was removed: nothing follows
	rejected outcome = "rejected"      // to the queue's dead-letter exchange
	requeued outcome = "requeued"      // back to the queue, or left to the broker
)

// decided is the outcome an error names itself, or "".
func decided(err error) outcome {
	var d *decision
	if errors.As(err, &d) {
		return d.as
	}
	return ""
}
