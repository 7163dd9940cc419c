package forward

import (
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/task"
)

const (
	// ownHeaders is the largest number of duefleet's own headers on a message.
	ownHeaders = 11
	appID      = "duefleet"
	// firstAttempt is the number of the first attempt; a lean message omits it.
	firstAttempt = 1
)

// Message is a task on its way to the broker.
type Message struct {
	// Task is published. It must not change before its Result.
	Task task.Task
	// Owner belongs to the caller and comes back with the Result.
	Owner Owner
	// Deadline is when the outcome must be known, by the monotonic clock. When it passes,
	// a message that was never written is Unsent and one in flight is Overdue. At zero
	// Route.ConfirmTimeout alone applies.
	Deadline time.Time
}

// Owner is the caller's state for a message until its Result.
type Owner interface {
	// Resolved takes the message's Result and returns how many bytes of memory it frees.
	// The publisher doesn't call it: the handle function given to NewPublisher does.
	Resolved(r Result) (freed int)
}

// Outcome says how publishing a message ended.
type Outcome uint8

const (
	// Confirmed messages belong to the broker now.
	Confirmed Outcome = iota + 1
	// Returned messages reached no queue.
	Returned
	// Refused messages were rejected by the broker (nack), or can't be written as an AMQP
	// message that this broker accepts.
	Refused
	// Unknown messages may or may not have reached the broker: the channel was lost, or
	// this process stood still.
	Unknown
	// Unsent messages never reached the broker. A later attempt is no redelivery.
	Unsent
	// Overdue messages were written, but the broker has not answered for them in time. It
	// may still answer for others, for example if one queue has no leader. Overdue
	// messages may be in other queues.
	Overdue
)

// String returns the outcome in lower case, as metrics and logs show it.
func (o Outcome) String() string {
	names := [...]string{Confirmed: "confirmed", Returned: "returned", Refused: "refused", Unknown: "unknown",
		Unsent: "unsent", Overdue: "overdue"}
	if int(o) < len(names) && names[o] != "" {
		return names[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Result is the one answer to a message.
type Result struct {
	Message *Message
	Outcome Outcome
	// Reason tells an operator why the message was not confirmed. Empty if Confirmed.
	Reason string
	// Elapsed is the time from writing the message to knowing its outcome. Zero if the
	// message was not written.
	Elapsed time.Duration
}

// Publishing returns the message that delivers t on a route that isn't lean. Its body
// shares t.Payload.
func Publishing(t task.Task) amqp.Publishing {
	return publishing(&t, make(amqp.Table, len(t.Headers)+ownHeaders), false)
}

// publishing fills headers, which may be reused once the message is written. A lean
// message always has the task's times, which identify its version. It has an attempt
// header only after the first attempt, and a redelivered header only if it may be a
// repeat. Both forms have the first due time if it differs, and the topic as their type.
func publishing(t *task.Task, headers amqp.Table, lean bool) amqp.Publishing {
	for k, v := range t.Headers {
		headers[k] = v
	}
	setOwn(headers, t, lean)
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
		p.AppId = appID
	}
	return p
}

// setOwn sets duefleet's headers, except those for options.
func setOwn(headers amqp.Table, t *task.Task, lean bool) {
	headers[task.HeaderDue] = t.Due.UnixMilli()
	if !t.FirstDue.IsZero() && !t.FirstDue.Equal(t.Due) {
		headers[task.HeaderFirstDue] = t.FirstDue.UnixMilli()
	}
	headers[task.HeaderScheduled] = t.Scheduled.UnixMilli()
	if t.Series != "" {
		headers[task.HeaderSeries] = t.Series
	}
	if t.Group != "" {
		headers[task.HeaderGroup] = t.Group
	}
	if !lean || t.Attempt != firstAttempt {
		headers[task.HeaderAttempt] = int32(t.Attempt) //nolint:gosec // attempts stay far below 2^31
	}
	if !lean || t.Redelivered {
		headers[task.HeaderRedelivered] = t.Redelivered
	}
	if !lean {
		headers[task.HeaderTopic] = t.Topic
	}
}

// setOptions applies the producer's options to a message. The routing key also goes into
// a header, so that a consumer can store the task again.
func setOptions(p *amqp.Publishing, o task.Options) {
	if o.RoutingKey != "" {
		p.Headers[task.HeaderRoutingKey] = o.RoutingKey
	}
	if o.Expiration > 0 {
		p.Expiration = strconv.FormatInt(o.Expiration.Milliseconds(), 10)
	}
	p.Priority, p.CorrelationId, p.ReplyTo = o.Priority, o.CorrelationID, o.ReplyTo
}

// sameVersion reports whether a returned message is this version of the task. After a
// reschedule in flight two versions share one message-id. The comparison uses the headers
// that the message carried: the route may have become lean, or stopped being lean, since
// then.
func sameVersion(r *amqp.Return, t *task.Task) bool {
	return r.Headers[task.HeaderDue] == t.Due.UnixMilli() &&
		r.Headers[task.HeaderScheduled] == t.Scheduled.UnixMilli() &&
		carried(r, task.HeaderAttempt, int32(firstAttempt)) == int32(t.Attempt) && //nolint:gosec // as in publishing
		carried(r, task.HeaderRedelivered, false) == t.Redelivered
}

// carried returns a header of a returned message, or absent if it has none.
func carried(r *amqp.Return, key string, absent any) any {
	if value, there := r.Headers[key]; there {
		return value
	}
	return absent
}

const (
	// maxShortString is the longest AMQP short string, in bytes.
	maxShortString = 255
	// headerFrameRest bounds the content header frame without the task's own headers:
	// seven short strings, duefleet's headers, numbers. In bytes.
	headerFrameRest = 2 << 10
	// headerFieldRest is the size of a field's lengths and type, without its key and
	// value.
	headerFieldRest = 6
)

// limits are the sizes that a connection's broker accepts, in bytes; zero is no limit.
type limits struct {
	frame, body int
}

// refusal returns why t can't become a message, or "". A longer short string or a larger
// header would end the connection. A header or body that the broker rejects would end the
// channel, on each attempt. Such a task must fail alone, not block its topic.
func refusal(t *task.Task, l limits) string {
	switch {
	case t.AMQP != nil:
		return refusalAsItWas(t, l)
	case len(t.ID) > maxShortString:
		return fmt.Sprintf("the ID has %d bytes; a message-id holds %d", len(t.ID), maxShortString)
	case len(t.Topic) > maxShortString:
		return fmt.Sprintf("the topic has %d bytes; a message's type holds %d", len(t.Topic), maxShortString)
	case len(t.ContentType) > maxShortString:
		return fmt.Sprintf("the content type has %d bytes; a message holds %d", len(t.ContentType), maxShortString)
	case l.body > 0 && len(t.Payload) > l.body:
		return tooLarge(t, l)
	case len(t.Headers) == 0 && t.Group == "":
		return ""
	}
	total := headerFrameRest + groupSize(t)
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

// groupSize returns the bytes of the header that names a task's group.
func groupSize(t *task.Task) int {
	if t.Group == "" {
		return 0
	}
	return len(task.HeaderGroup) + len(t.Group) + headerFieldRest
}

func tooLarge(t *task.Task, l limits) string {
	return fmt.Sprintf("the payload has %d bytes; the broker takes %d (its max_message_size)", len(t.Payload), l.body)
}

// returnReason tells an operator why a message came back.
func returnReason(r *amqp.Return) string {
	return fmt.Sprintf("returned: %d %s from exchange %q with routing key %q", r.ReplyCode, r.ReplyText, r.Exchange,
		r.RoutingKey)
}
