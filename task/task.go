// Package task holds the words every part of duefleet shares: what a task is,
// the rules an ID, a topic, a payload and a due time must keep, and the errors.
// It imports the standard library alone, so that anything may import it.
package task

import "time"

// DefaultContentType is what a task without a content type is delivered with.
const DefaultContentType = "application/octet-stream"

// Task is one piece of delayed work. The pair of Topic and ID names it: the
// same ID in another topic is another task.
type Task struct {
	// Topic is the stream of tasks it belongs to; see CheckTopic.
	Topic string
	// ID names the task within its topic and becomes AMQP's message-id; see CheckID.
	ID string
	// Due is when the task is to be delivered, by Redis's clock, to the
	// millisecond.
	Due time.Time
	// Scheduled is when Redis stored this version of the task, by Redis's
	// clock. Zero on the way in.
	Scheduled time.Time
	// Attempt counts deliveries tried, from 1. Attempts that the broker
	// returned or refused count; attempts that ended with a lost connection do
	// not. Zero on the way in.
	Attempt int
	// Redelivered is true where an earlier attempt may have reached the broker.
	Redelivered bool
	// ContentType of the payload; empty stands for DefaultContentType.
	ContentType string
	// Headers travel with the task into the message; see CheckHeaders.
	Headers map[string]string
	// Options of its message; see CheckOptions.
	Options Options
	// Payload is delivered byte for byte; see CheckPayload.
	Payload []byte
}

// State is where a stored task stands.
type State string

const (
	// Waiting tasks are due later, or due and not claimed yet.
	Waiting State = "waiting"
	// Leased tasks are claimed by a scanner, or exported to a mover, for a while.
	Leased State = "leased"
	// Parked tasks could not be delivered and wait for an operator's replay.
	Parked State = "parked"
)

// Delivery is a task in the hands of its handler.
type Delivery struct {
	Task
	next func(due time.Time, payload []byte) error
}

// NewDelivery puts a delivery together: package consumer does, and tests of
// handlers, which learn through next what the handler asks for. It may be nil.
func NewDelivery(t Task, next func(due time.Time, payload []byte) error) Delivery {
	return Delivery{t, next}
}

// Next asks for the next step of the same task: under the same topic and ID, with
// the same headers, its attempts counted from 1. It is stored once the handler has
// returned nil, and before the delivery is acked; not if the handler fails, and not
// if the producer has cancelled or replaced the task since. A due time in the past
// means now. The last call counts.
//
// Errors: *RuleError for a due time or a payload that breaks a rule, and ErrNoNext.
func (d Delivery) Next(due time.Time, payload []byte) error {
	if d.next == nil {
		return ErrNoNext
	}
	return d.next(due, payload)
}
