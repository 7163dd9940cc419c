package task

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits of input.
const (
	// MaxTopic is the longest topic, in bytes.
	MaxTopic = 64
	// MaxID is the longest ID, in bytes: the limit of an AMQP short string.
	MaxID = 255
	// MaxGroup is the longest group, in bytes.
	MaxGroup = 255
	// MaxContentType is the longest content type, in bytes, for the same reason.
	MaxContentType = 255
	// DefaultMaxPayload is the default limit of a payload, in bytes.
	DefaultMaxPayload = 256 << 10
	// MaxMaxPayload is the highest limit of a payload that can be configured, in bytes.
	MaxMaxPayload = 16 << 20
	// MaxHeaders is the largest number of headers of one task.
	MaxHeaders = 32
	// MaxHeaderKey is the longest header key, in bytes.
	MaxHeaderKey = 128
	// MaxHeaderBytes limits all header keys and values of a task together, so that the
	// message header fits into one AMQP frame of 128 KiB.
	MaxHeaderBytes = 64 << 10
	// MaxYearsAhead is how far in the future a task may be due, in years.
	MaxYearsAhead = 100
	// MaxAhead is the same as a duration: 100 years of 365.25 days, whatever leap years lie
	// ahead.
	MaxAhead = 36525 * 24 * time.Hour
	// ReservedHeaderPrefix is the prefix of the headers that duefleet sets itself.
	ReservedHeaderPrefix = "x-duefleet-"
)

// The headers that duefleet adds to a message. A topic with the setting "headers: lean"
// sends lean messages. These leave out headers that repeat a property of the message or
// hold the usual value.
const (
	// HeaderTopic is a string: the topic. A lean message doesn't have it.
	HeaderTopic = ReservedHeaderPrefix + "topic"
	// HeaderDue is when the task was due, an int64 of Unix milliseconds.
	HeaderDue = ReservedHeaderPrefix + "due"
	// HeaderFirstDue is when the task was due first, an int64 of Unix milliseconds. A
	// message has it, lean or not, if it differs from HeaderDue: in retries.
	HeaderFirstDue = ReservedHeaderPrefix + "first-due"
	// HeaderScheduled is Task.Scheduled, an int64 of Unix milliseconds.
	HeaderScheduled = ReservedHeaderPrefix + "scheduled"
	// HeaderAttempt is the attempt, an int32 that counts from 1. A lean message has it
	// only above 1.
	HeaderAttempt = ReservedHeaderPrefix + "attempt"
	// HeaderRedelivered is a bool: true if an earlier attempt may have reached the
	// broker. A lean message has it only if it is true.
	HeaderRedelivered = ReservedHeaderPrefix + "redelivered"
	// HeaderRoutingKey is a string: Options.RoutingKey. A message has it, lean or not, if
	// the task has that option.
	HeaderRoutingKey = ReservedHeaderPrefix + "routing-key"
	// HeaderID is a string: the task's ID. Only messages that came through an intake have
	// it, and only if the topic's setting intake.headers is true.
	HeaderID = ReservedHeaderPrefix + "id"
	// HeaderUserID is a string: the user-id of a message that came through an intake, if it
	// isn't the user with whom the scanner connects. Such a message has no user-id.
	HeaderUserID = ReservedHeaderPrefix + "user-id"
	// HeaderSeries is a string: Task.Series. Only runs of recurring tasks have it. It has no
	// reserved prefix, so that older scanners and consumers pass it on.
	HeaderSeries = "duefleet-series"
	// HeaderGroup is a string: Task.Group. A message has it, lean or not, if its task is in a
	// group.
	HeaderGroup = ReservedHeaderPrefix + "group"
)

// CheckTopic returns a RuleError unless topic is 1 to 64 of A-Z a-z 0-9 . _ -.
func CheckTopic(topic string) error {
	if len(topic) == 0 || len(topic) > MaxTopic {
		return topicError(size(len(topic)))
	}
	for i, r := range topic {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
		if !ok {
			return topicError(fmt.Sprintf("%s with %q at byte %d", size(len(topic)), r, i))
		}
	}
	return nil
}

func topicError(got string) error {
	return &RuleError{"topic", fmt.Sprintf("must be 1 to %d of A-Z a-z 0-9 . _ -", MaxTopic), got}
}

// CheckID returns a RuleError unless id is 1 to 255 bytes of valid UTF-8.
func CheckID(id string) error {
	return checkText("id", id, 1, MaxID)
}

// CheckGroup returns a RuleError unless group is at most 255 bytes of valid UTF-8. "" is no group.
func CheckGroup(group string) error {
	return checkText("group", group, 0, MaxGroup)
}

// CheckContentType returns a RuleError unless ct is at most 255 bytes of valid UTF-8.
func CheckContentType(ct string) error {
	return checkText("content_type", ct, 0, MaxContentType)
}

// CheckPayload returns a RuleError if payload is larger than limit bytes.
func CheckPayload(payload []byte, limit int) error {
	if len(payload) > limit {
		return &RuleError{"payload", fmt.Sprintf("must be at most %d bytes (max_payload)", limit), size(len(payload))}
	}
	return nil
}

// CheckHeaders returns a RuleError unless there are at most 32 headers, with keys of 1 to
// 128 bytes. Keys and values must be valid UTF-8, and at most 64 KiB together. A key must
// not begin with x-duefleet-. It can't be CC or BCC, which RabbitMQ uses for routing and
// refuses as text (https://www.rabbitmq.com/docs/sender-selected).
func CheckHeaders(headers map[string]string) error {
	if len(headers) > MaxHeaders {
		return &RuleError{"headers", fmt.Sprintf("must be at most %d", MaxHeaders), fmt.Sprintf("%d headers", len(headers))}
	}
	total := 0
	for k, v := range headers {
		if err := checkText("header key", k, 1, MaxHeaderKey); err != nil {
			return err
		}
		if len(k) >= len(ReservedHeaderPrefix) && strings.EqualFold(k[:len(ReservedHeaderPrefix)], ReservedHeaderPrefix) {
			return &RuleError{"header key", "must not begin with " + ReservedHeaderPrefix,
				fmt.Sprintf("%q (%s)", k, size(len(k)))}
		}
		if k == "CC" || k == "BCC" {
			return &RuleError{"header key", "must not be CC or BCC, which RabbitMQ routes by",
				fmt.Sprintf("%q (%s)", k, size(len(k)))}
		}
		if !utf8.ValidString(v) {
			return &RuleError{"header " + k, "must be valid UTF-8", size(len(v)) + " that are not"}
		}
		total += len(k) + len(v)
	}
	if total > MaxHeaderBytes {
		return &RuleError{"headers", fmt.Sprintf("must be at most %d bytes of keys and values together", MaxHeaderBytes),
			size(total)}
	}
	return nil
}

// CheckDue returns a RuleError if due is more than MaxAhead after now. A time in the past
// is allowed and means now.
func CheckDue(due, now time.Time) error {
	if due.After(now.Add(MaxAhead)) {
		return tooFar(due.UTC().Format(time.RFC3339))
	}
	return nil
}

func checkText(field, s string, least, most int) error {
	if len(s) >= least && len(s) <= most && utf8.ValidString(s) {
		return nil
	}
	rule := fmt.Sprintf("must be %d to %d bytes of valid UTF-8", least, most)
	got := size(len(s))
	if !utf8.ValidString(s) {
		got += " that are not valid UTF-8"
	}
	return &RuleError{field, rule, got}
}

func size(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// maxShortString is the longest AMQP short string, in bytes.
const maxShortString = 255

// directReplyTo means a consumer on the publisher's own channel. RabbitMQ closes a
// channel that names it without having such a consumer
// (https://www.rabbitmq.com/docs/direct-reply-to).
const directReplyTo = "amq.rabbitmq.reply-to"

// CheckOptions returns a RuleError for the first option that is out of range.
func CheckOptions(o Options) error {
	for _, text := range []struct{ field, value string }{
		{"routing_key", o.RoutingKey}, {"correlation_id", o.CorrelationID}, {"reply_to", o.ReplyTo},
	} {
		if err := checkText(text.field, text.value, 0, maxShortString); err != nil {
			return err
		}
	}
	if o.ReplyTo == directReplyTo {
		return &RuleError{"reply_to", "must be a queue that others can reach", o.ReplyTo}
	}
	if o.Expiration != 0 && (o.Expiration < time.Millisecond || o.Expiration > MaxExpiration) {
		return &RuleError{"expiration", fmt.Sprintf("must be 1ms to %s", MaxExpiration), o.Expiration.String()}
	}
	return nil
}

// CheckWhen returns a RuleError for a due time that Check refuses, and for At of an instant
// more than MaxAhead after now.
func CheckWhen(w When, now time.Time) error {
	if err := w.Check(); err != nil || w.kind != whenAt {
		return err
	}
	return CheckDue(w.Time(now), now)
}

// Check returns a RuleError for a due time that was probably forgotten or given in another
// unit, and for a delay of more than MaxAhead. These are the rules of CheckWhen that need no
// clock.
func (w When) Check() error {
	delay := time.Duration(w.n)
	switch w.kind {
	case whenNone:
		return forgotten("no time")
	case whenAt:
		return checkInstant(w.n)
	case whenIn:
		switch {
		case delay == 0:
			return forgotten("In(0)")
		case delay > 0 && delay < time.Millisecond:
			return &RuleError{"due", "must be at least 1ms: In takes a time.Duration, as in 30*time.Minute", delay.String()}
		case delay > MaxAhead:
			return tooFar(delay.String())
		}
	}
	return nil
}

// earliest is the first instant that is a due time, in Unix ms: 1971-01-01T00:00:00Z.
const earliest = 365 * 24 * 3600 * 1000

func checkInstant(millis int64) error {
	at := time.UnixMilli(millis).UTC().Format(time.RFC3339)
	switch {
	case millis == time.Time{}.UnixMilli():
		return forgotten("the zero time.Time")
	case LooksLikeSeconds(millis):
		rule := fmt.Sprintf("looks like Unix seconds that were taken for milliseconds; want time.Unix(%d, 0)", millis)
		return &RuleError{"due", rule, at}
	case millis < earliest:
		return &RuleError{"due", "must be in 1971 or later: an earlier time is one that was never set", at}
	}
	return nil
}

func forgotten(got string) error { return &RuleError{"due", "must be given; Now() is due now", got} }

func tooFar(got string) error {
	return &RuleError{"due", fmt.Sprintf("must be at most %d years ahead", MaxYearsAhead), got}
}

// LooksLikeSeconds reports whether a number given as Unix milliseconds is probably Unix
// seconds of 2001 to 2099. As milliseconds it lies in January or February 1970, where no
// task is due.
func LooksLikeSeconds(millis int64) bool { return millis >= 1_000_000_000 && millis <= 4_100_000_000 }
