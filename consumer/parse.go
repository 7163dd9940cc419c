package consumer

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqptypes"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// ErrForeign: the message has no due time or no scheduled time, which every message of
// duefleet has, lean ones too.
var ErrForeign = errors.New("not a message of duefleet")

// Parse reads the task from a delivery, which may be a lean message. Without a topic header,
// the topic is the message's type. Without an attempt header, the attempt is 1. Redelivered
// is true if the scanner or RabbitMQ may have delivered the task before. The payload is the
// delivery's body, not a copy. Parse leaves out headers that RabbitMQ added.
//
// A message that came through the topic's intake has duefleet's headers if the setting
// intake.headers is true. Then the task has AMQP, and neither Headers nor Options.
//
// Errors:
//   - ErrForeign.
//   - *HeaderError: a header has another type than scanners give it, the attempt is below 1,
//     or the expiration isn't a number.
//   - *task.RuleError: the topic or the ID breaks a rule, or the body is above 16 MiB.
func Parse(d amqp.Delivery) (task.Task, error) {
	in := reader{table: d.Headers}
	t := task.Task{
		Topic:       fieldOr(&in, task.HeaderTopic, d.Type),
		ID:          d.MessageId,
		Due:         time.UnixMilli(field[int64](&in, task.HeaderDue)).UTC(),
		Scheduled:   time.UnixMilli(field[int64](&in, task.HeaderScheduled)).UTC(),
		Attempt:     int(fieldOr[int32](&in, task.HeaderAttempt, 1)),
		Redelivered: fieldOr(&in, task.HeaderRedelivered, false) || d.Redelivered,
		ContentType: d.ContentType,
		Options: task.Options{
			RoutingKey: fieldOr(&in, task.HeaderRoutingKey, ""),
			Priority:   d.Priority, Expiration: in.expiration(d.Expiration), CorrelationID: d.CorrelationId, ReplyTo: d.ReplyTo,
		},
		Payload: d.Body,
	}
	mark, _ := d.Headers[shard.HeaderNext].(string) // scanners older than HeaderFirstDue send only this one
	t.FirstDue = time.UnixMilli(fieldOr(&in, task.HeaderFirstDue, shard.ReadNext(mark, t.Due).FirstDue.UnixMilli())).UTC()
	id := fieldOr(&in, task.HeaderID, "")
	t.Group = fieldOr(&in, task.HeaderGroup, "")
	if in.err != nil {
		return task.Task{}, in.err
	}
	t.Series, _ = d.Headers[task.HeaderSeries].(string)
	if id != "" {
		t.ID, t.Options, t.AMQP = id, task.Options{}, asPublished(&d, fieldOr(&in, task.HeaderRoutingKey, ""))
	}
	if t.Attempt < 1 {
		return task.Task{}, &HeaderError{task.HeaderAttempt, fmt.Sprintf("%d, and attempts count from 1", t.Attempt)}
	}
	for _, err := range []error{task.CheckTopic(t.Topic), task.CheckID(t.ID), task.CheckGroup(t.Group),
		task.CheckPayload(t.Payload, task.MaxMaxPayload)} {
		if err != nil {
			return task.Task{}, fmt.Errorf("parse delivery: %w", err)
		}
	}
	if t.AMQP == nil {
		t.Headers = ownHeaders(d.Headers)
	}
	return t, nil
}

// asPublished returns a message of the intake as its client published it.
func asPublished(d *amqp.Delivery, routingKey string) *task.AMQP {
	m := amqptypes.Message(d)
	if user, ok := m.Headers[task.HeaderUserID].(string); ok {
		m.Properties.UserID = user
	}
	maps.DeleteFunc(m.Headers, func(key string, _ any) bool { return isReserved(key) || isBrokers(key) })
	return &task.AMQP{RoutingKey: routingKey, Properties: m.Properties, Headers: m.Headers}
}

// isBrokers reports whether RabbitMQ adds a header of this key when it redelivers or
// dead-letters a message. The value isn't text.
func isBrokers(key string) bool {
	return key == "x-death" || key == "x-delivery-count" || key == "x-acquired-count"
}

// HeaderError says which header of a delivery can't be read.
type HeaderError struct {
	// Header is its key.
	Header string
	// Got describes its value, without the content of a text.
	Got string
}

func (e *HeaderError) Error() string { return fmt.Sprintf("header %s holds %s", e.Header, e.Got) }

// reader reads headers and keeps the first error.
type reader struct {
	table amqp.Table
	err   error
}

func field[T any](r *reader, key string) T {
	value, there := r.table[key]
	typed, ok := value.(T)
	switch {
	case r.err != nil || ok:
	case !there:
		r.err = fmt.Errorf("%w: it has no header %s", ErrForeign, key)
	default:
		r.err = &HeaderError{key, fmt.Sprintf("a %T in the place of a %T", value, typed)}
	}
	return typed
}

// expiration reads the expiration of a message, a text with a number of milliseconds.
func (r *reader) expiration(text string) time.Duration {
	if text == "" {
		return 0
	}
	ms, err := strconv.ParseUint(text, 10, 32)
	if err != nil && r.err == nil {
		r.err = &HeaderError{"expiration", "no number of milliseconds"}
	}
	return time.Duration(ms) * time.Millisecond
}

// fieldOr returns a header, or absent if the message doesn't have it.
func fieldOr[T any](r *reader, key string, absent T) T {
	if _, there := r.table[key]; !there {
		return absent
	}
	return field[T](r, key)
}

// ownHeaders returns the headers that the producer gave the task. These are texts. It
// leaves out the headers of duefleet. It also leaves out those that RabbitMQ adds when it
// redelivers or dead-letters a message; most of them aren't texts.
func ownHeaders(table amqp.Table) map[string]string {
	var own map[string]string
	for k, v := range table {
		text, ok := v.(string)
		if !ok || isReserved(k) || len(k) > task.MaxHeaderKey || len(own) == task.MaxHeaders {
			continue
		}
		if own == nil {
			own = make(map[string]string, len(table))
		}
		own[k] = text
	}
	return own
}

func isReserved(key string) bool {
	return strings.HasPrefix(key, task.ReservedHeaderPrefix) || key == shard.HeaderNext ||
		key == task.HeaderSeries ||
		strings.HasPrefix(key, "x-first-death-") || strings.HasPrefix(key, "x-last-death-")
}
