package task

import "time"

// Event is one event in the life of a task, as its topic's setting history keeps it.
type Event struct {
	Kind EventKind
	// At is when it happened, by the clock of the Redis server that has the task.
	At time.Time
	// Due is when the task was due after the event. For Handled it is the due time of the
	// delivery that was handled. It is zero for the other kinds.
	Due time.Time
	// Reason of Retried and Parked, cut to 200 bytes; "" if there was none.
	Reason string
}

// EventKind names what happened.
type EventKind string

// The kinds of events.
const (
	// Scheduled: a producer or the intake stored the task, or replaced it.
	Scheduled EventKind = "scheduled"
	// Moved: the task was given another due time.
	Moved EventKind = "moved"
	// Delivered: RabbitMQ confirmed the message, and the task left Redis. A task that was
	// cancelled or replaced while its message was under way has no such event.
	Delivered EventKind = "delivered"
	// Handled: a consumer's handler returned without an error. It is known if the consumer
	// remembers deliveries, for as long as it does.
	Handled EventKind = "handled"
	// Cancelled: the task was removed before its delivery.
	Cancelled EventKind = "cancelled"
	// Retried: the broker returned or refused the message, or the handler failed. The task
	// is due again.
	Retried EventKind = "retried"
	// ParkedEvent: the task was set aside.
	ParkedEvent EventKind = "parked"
	// Replayed: a parked task was made due again.
	Replayed EventKind = "replayed"
	// Purged: a parked task was removed.
	Purged EventKind = "purged"
)
