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
	// FirstDue is when the task was due first. In a retry that package consumer stored,
	// Due is later than FirstDue. Schedule, Reschedule to another time, and a next step
	// set FirstDue to their own Due. It is zero before the task is stored, and in lists
	// without headers.
	FirstDue time.Time
	// Scheduled is when Redis stored this version of the task, by Redis's clock. It is
	// zero before that. All deliveries of the version have the same Scheduled, retries
	// included. So topic, ID and Scheduled together are an idempotency key. All steps of
	// a chain share them too: there, add the step to the key.
	Scheduled time.Time
	// Attempt is the number of this attempt, from 1. Attempts that the broker returned
	// or refused count, and attempts whose handler failed. An attempt that ended with a
	// lost connection or with consumer.Later doesn't count. Attempt is zero before the task is stored.
	Attempt int
	// Redelivered is true if an earlier attempt may have reached the broker.
	Redelivered bool
	// ContentType of the payload; empty stands for DefaultContentType.
	ContentType string
	// Headers travel with the task into the message; see CheckHeaders.
	Headers map[string]string
	// Options of the task's message; see CheckOptions.
	Options Options
	// Payload is delivered byte for byte; see CheckPayload.
	Payload []byte
	// Group is the group that the task is in, with all others of its topic that name the same
	// one; "": none. See CheckGroup.
	Group string
	// Recurrence is the rule of a recurring task; nil for every other task, and for a run.
	Recurrence *Recurrence
	// Series is the ID of the recurring task if this task is a run of it, else "". The run's
	// own ID is RunID's.
	Series string
	// AMQP is the message of a task that came through the topic's intake; nil for every
	// other task. A task with it has neither Headers nor Options: they are in AMQP, as is
	// the content type that the message has.
	AMQP *AMQP
}

// State is the state of a stored task.
type State string

const (
	// Waiting tasks are due later, or are due and no scanner has claimed them.
	Waiting State = "waiting"
	// Leased tasks are claimed by a scanner that publishes them, or by one that moves
	// them to another shard.
	Leased State = "leased"
	// Parked tasks were set aside after their last attempt, or by their handler. They
	// stay until somebody replays, reschedules or removes them.
	Parked State = "parked"
)
