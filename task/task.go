// Package task defines what all parts of duefleet share: the task, the rules for IDs,
// topics, payloads and due times, and the errors. It imports only the standard library, so
// every package may import it.
package task

import "time"

// DefaultContentType is the content type of a message whose task has none.
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
	// FirstDue is when the task was due first. It differs from Due in what package
	// consumer stored for a retry: there Due is the retry's. A new Schedule, a Reschedule
	// to another time and a next step begin again: FirstDue is their Due. Zero on the way
	// in, and in lists without headers.
	FirstDue time.Time
	// Scheduled is when Redis stored this version of the task, by Redis's
	// clock. Zero on the way in. Every delivery of the version has the same, retries
	// included, whose Due differs: topic, ID and Scheduled together are an idempotency key.
	// The steps of a chain share it; there the payload says which step it is.
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
