package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

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
// that. A task that a handler schedules with ctx belongs to the trace of ctx. With
// Config.TracerProvider, ctx carries the span of this run.
type Handler func(ctx context.Context, d task.Delivery) error

// Park returns an error that parks the task at once, with err as the reason. `scanner
// parked ls` shows it, and `scanner parked replay` makes it due again.
func Park(err error) error { return &decision{err: err, as: park} }

// Drop returns an error that gives the task up for good: it is acked and counted.
func Drop(err error) error { return &decision{err: err, as: drop} }

// Later returns an error that delivers the task again after d, without counting the
// attempt. It is for work that can't be done now, as when a service asks to wait. d is 1ms
// to task.MaxAhead. With any other d the attempt counts as failed, and the policy decides.
// The task is due at least Config.MinStep after it is stored.
//
// The next delivery has the same Attempt and FirstDue. In a chain it repeats the step, and a
// next step that the handler asked for isn't stored. If the producer cancelled or replaced
// the task since, it isn't delivered again, as with a retry. The delivery is counted as
// postponed and logged with err as the reason.
//
// Nothing limits how often a task is postponed: compare task.Task.FirstDue with the time.
func Later(err error, d time.Duration) error {
	if d < time.Millisecond || d > task.MaxAhead {
		return fmt.Errorf("consumer.Later: delay must be 1ms to %s; got %s: %w", task.MaxAhead, d,
			&decision{err: err})
	}
	return &decision{err: err, as: postponed, wait: d}
}

// IsLater returns the delay of a handler's error that is, or wraps, one from Later. It is
// for tests of handlers.
func IsLater(err error) (d time.Duration, ok bool) {
	later := decided(err)
	return later.wait, later.as == postponed
}

// IsParked reports whether a handler's error is, or wraps, one from Park. It is for tests
// of handlers.
func IsParked(err error) bool { return decided(err).as == park }

// IsDropped reports whether a handler's error is, or wraps, one from Drop. It is for
// tests of handlers.
func IsDropped(err error) bool { return decided(err).as == drop }

// decision is an error that sets the outcome of a delivery.
type decision struct {
	err  error
	as   outcome
	wait time.Duration // of postponed
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
	postponed  outcome = "postponed"     // stored again, because the handler asked for it.
	park       outcome = "parked"        // set aside.
	drop       outcome = "dropped"       // the handler gave it up.
	superseded outcome = "superseded"    // cancelled or replaced by the producer meanwhile.
	removed    outcome = "topic_removed" // its topic was removed: nothing follows.
	rejected   outcome = "rejected"      // to the queue's dead-letter exchange.
	requeued   outcome = "requeued"      // back to the queue, or left to the broker.
)

// decided returns the decision in err; the zero decision if there is none.
func decided(err error) decision {
	var d *decision
	if errors.As(err, &d) {
		return *d
	}
	return decision{}
}
