package consumer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// ErrForeign: the message has no due time or no scheduled time, which every message of
// duefleet has, lean ones too.
var ErrForeign = errors.New("not a message of duefleet")

// Parse reads the task from a delivery. For a lean message, the topic is the message's
// type. Without their headers the attempt is the first and Redelivered is false. Redelivered
// is true if the scanner or RabbitMQ may have delivered the task before. The payload is the
// delivery's body, not a copy. Parse leaves out headers that RabbitMQ added.
//
// Errors:
//   - ErrForeign;
//   - *HeaderError for a header of another type than scanners set, and for an expiration
//     that isn't a number;
//   - *task.RuleError for a name that breaks a rule, or a body above 16 MiB.
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
	mark, _ := d.Headers[shard.HeaderNext].(string) // a scanner from before HeaderFirstDue passes on this alone
	t.FirstDue = time.UnixMilli(fieldOr(&in, task.HeaderFirstDue, shard.FirstDue(mark, t.Due).UnixMilli())).UTC()
	if in.err != nil {
		return task.Task{}, in.err
	}
	if t.Attempt < 1 {
		return task.Task{}, &HeaderError{task.HeaderAttempt, fmt.Sprintf("%d, and attempts count from 1", t.Attempt)}
	}
	for _, err := range []error{task.CheckTopic(t.Topic), task.CheckID(t.ID),
		task.CheckPayload(t.Payload, task.MaxMaxPayload)} {
		if err != nil {
			return task.Task{}, fmt.Errorf("parse delivery: %w", err)
		}
	}
	t.Headers = ownHeaders(d.Headers)
	return t, nil
}

// HeaderError says which header of a delivery can't be read.
type HeaderError struct {
	// Header is its key.
	Header string
	// Got describes what it holds, without a text's content.
	Got string
}

func (e *HeaderError) Error() string { return fmt.Sprintf("header %s holds %s", e.Header, e.Got) }

// reader keeps the first error of reading headers.
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

// expiration reads a property that RabbitMQ lets only milliseconds be.
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

// fieldOr is a header that lean messages may lack, and what its absence says.
func fieldOr[T any](r *reader, key string, absent T) T {
	if _, there := r.table[key]; !there {
		return absent
	}
	return field[T](r, key)
}

// ownHeaders are those the producer gave the task, which are texts; RabbitMQ adds
// its own, most of them others, when it redelivers or dead-letters.
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
		strings.HasPrefix(key, "x-first-death-") || strings.HasPrefix(key, "x-last-death-")
}
