package forward

import (
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/task"
)

const (
	// ownHeaders is how many of a message's headers are duefleet's, at most.
	ownHeaders = 7
	appID      = "duefleet"
	// firstAttempt is what attempts count from; a lean message doesn't name it.
	firstAttempt = 1
)

// Message is a task on its way to the broker.
type Message struct {
	// Task is what is published. It must not change before its Result.
	Task task.Task
	// Owner is the caller's and comes back with the Result.
	Owner Owner
	// Deadline is when the outcome must be known, by the monotonic clock. A
	// message whose deadline passes unwritten is Unsent, one in flight is
	// Overdue. Zero leaves it to Route.ConfirmTimeout.
	Deadline time.Time
}

// Owner is what the caller keeps of a message until its Result.
type Owner interface {
	// Resolved takes the message's Result and returns how many bytes of memory it frees.
	// The publisher doesn't call it: the function that takes the results does.
	Resolved(r Result) (freed int)
}

// Outcome is what became of a message.
type Outcome uint8

const (
	// Confirmed messages are the broker's now.
	Confirmed Outcome = iota + 1
	// Returned messages were routed to no queue.
	Returned
	// Refused messages were turned down by the broker (nack), or can't be
	// written as an AMQP message that this broker would take.
	Refused
	// Unknown messages may or may not have reached the broker: the channel was
	// lost, or this process stood still.
	Unknown
	// Unsent messages never reached the broker: they can be given back without
	// a mark.
	Unsent
	// Overdue messages were written, and the broker has not answered for them in
	// time, though it may for others: a queue without a leader, say. They may be
	// in other queues.
	Overdue
)

// String is the outcome in lower case, as metrics and logs show it.
func (o Outcome) String() string {
	switch o {
	case Confirmed:
		return "confirmed"
	case Returned:
		return "returned"
	case Refused:
		return "refused"
	case Unknown:
		return "unknown"
	case Unsent:
		return "unsent"
	case Overdue:
		return "overdue"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Result is the one answer to a message.
type Result struct {
	Message *Message
	Outcome Outcome
	// Reason says why the message was not confirmed, for an operator. Empty
	// with Confirmed.
	Reason string
	// Elapsed is the time from writing the message to knowing its outcome.
	// Zero for what was not written.
	Elapsed time.Duration
}

// Publishing is the message that t is delivered as by a route that isn't lean. Its
// body shares t.Payload.
func Publishing(t task.Task) amqp.Publishing {
	return publishing(&t, make(amqp.Table, len(t.Headers)+ownHeaders), false)
}

// publishing fills headers, which may be used again once the message is written.
// A lean message has the times of the task, which tell its version from others, and
// says beyond them only what isn't so of most: another attempt than the first, and
// that it may be a repeat. When a task was due first stands in both forms, where that
// isn't its due. Its type is the topic in both forms.
func publishing(t *task.Task, headers amqp.Table, lean bool) amqp.Publishing {
	for k, v := range t.Headers {
		headers[k] = v
	}
	headers[task.HeaderDue] = t.Due.UnixMilli()
	if !t.FirstDue.IsZero() && !t.FirstDue.Equal(t.Due) {
		headers[task.HeaderFirstDue] = t.FirstDue.UnixMilli()
	}
	headers[task.HeaderScheduled] = t.Scheduled.UnixMilli()
	if !lean || t.Attempt != firstAttempt {
		headers[task.HeaderAttempt] = int32(t.Attempt) //nolint:gosec // attempts stay far below 2^31
	}
	if !lean || t.Redelivered {
		headers[task.HeaderRedelivered] = t.Redelivered
	}
	p := amqp.Publishing{
		Headers:      headers,
		ContentType:  t.ContentType,
		DeliveryMode: amqp.Persistent,
		MessageId:    t.ID,
		Timestamp:    t.Due,
		Type:         t.Topic,
		Body:         t.Payload,
	}
	if p.ContentType == "" {
		p.ContentType = task.DefaultContentType
	}
	if t.Options != (task.Options{}) {
		setOptions(&p, t.Options)
	}
	if !lean {
		headers[task.HeaderTopic], p.AppId = t.Topic, appID
	}
	return p
}

// setOptions gives a message what its producer asked for. The routing key is told in a
// header, too, for a consumer that stores the task again.
func setOptions(p *amqp.Publishing, o task.Options) {
	if o.RoutingKey != "" {
		p.Headers[task.HeaderRoutingKey] = o.RoutingKey
	}
	if o.Expiration > 0 {
		p.Expiration = strconv.FormatInt(o.Expiration.Milliseconds(), 10)
	}
	p.Priority, p.CorrelationId, p.ReplyTo = o.Priority, o.CorrelationID, o.ReplyTo
}

// sameVersion reports whether a returned message is this version of the task:
// a task that was rescheduled while in flight shares its message-id only. It goes by
// what the message carried: the route may be lean since, or no longer.
func sameVersion(r *amqp.Return, t *task.Task) bool {
	return r.Headers[task.HeaderDue] == t.Due.UnixMilli() &&
		r.Headers[task.HeaderScheduled] == t.Scheduled.UnixMilli() &&
		carried(r, task.HeaderAttempt, int32(firstAttempt)) == int32(t.Attempt) && //nolint:gosec // as in publishing
		carried(r, task.HeaderRedelivered, false) == t.Redelivered
}

// carried is what a returned message says in a header, or by not having it.
func carried(r *amqp.Return, key string, absent any) any {
	if value, there := r.Headers[key]; there {
		return value
	}
	return absent
}

const (
	// maxShortString is the longest AMQP short string, in bytes.
	maxShortString = 255
	// headerFrameRest bounds what a content header frame holds beside the
	// task's own headers: seven short strings, duefleet's headers, numbers.
	headerFrameRest = 2 << 10
	// headerFieldRest is a field's lengths and type, beside its key and value.
	headerFieldRest = 6
)

// limits are what one connection's broker takes, in bytes; zero is no limit.
type limits struct {
	frame, body int
}

// refusal says why t can't become a message, or is empty. A longer short
// string or a larger header would end the connection, and a header or a body
// the broker objects to would end the channel, each time the task is tried:
// that must hit the task and not its topic.
func refusal(t *task.Task, l limits) string {
	switch {
	case len(t.ID) > maxShortString:
		return fmt.Sprintf("the ID has %d bytes; a message-id holds %d", len(t.ID), maxShortString)
	case len(t.Topic) > maxShortString:
		return fmt.Sprintf("the topic has %d bytes; a message's type holds %d", len(t.Topic), maxShortString)
	case len(t.ContentType) > maxShortString:
		return fmt.Sprintf("the content type has %d bytes; a message holds %d", len(t.ContentType), maxShortString)
	case l.body > 0 && len(t.Payload) > l.body:
		return fmt.Sprintf("the payload has %d bytes; the broker takes %d (its max_message_size)", len(t.Payload), l.body)
	case len(t.Headers) == 0:
		return ""
	}
	total := headerFrameRest
	for k, v := range t.Headers {
		if len(k) > maxShortString {
			return fmt.Sprintf("a header key has %d bytes; a message holds %d", len(k), maxShortString)
		}
		if k == "CC" || k == "BCC" {
			return fmt.Sprintf("header %s: RabbitMQ reads it as a list of routing keys and refuses text", k)
		}
		total += len(k) + len(v) + headerFieldRest
	}
	if l.frame > 0 && total > l.frame {
		return fmt.Sprintf("the headers take %d bytes; the broker's frame_max is %d", total, l.frame)
	}
	return ""
}

// returnReason is why a message came back, for an operator.
func returnReason(r *amqp.Return) string {
	return fmt.Sprintf("returned: %d %s from exchange %q with routing key %q", r.ReplyCode, r.ReplyText, r.Exchange, r.RoutingKey)
}
