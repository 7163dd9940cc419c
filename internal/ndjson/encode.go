package ndjson

import (
	"errors"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// ErrIntake is the error for a task that came through a topic's intake. A line has no
// fields for its AMQP message.
var ErrIntake = errors.New("came through the topic's intake: a line can't hold its AMQP message")

// storedLine is a line that Decoder reads. Its fields are in the order of loadLine.
type storedLine struct {
	Topic         string            `json:"topic,omitzero"`
	ID            string            `json:"id"`
	At            string            `json:"at"`
	Payload       string            `json:"payload,omitzero"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`
	ContentType   string            `json:"content_type,omitzero"`
	Headers       map[string]string `json:"headers,omitempty"`
	RoutingKey    string            `json:"routing_key,omitzero"`
	Priority      uint8             `json:"priority,omitzero"`
	Expiration    string            `json:"expiration,omitzero"`
	CorrelationID string            `json:"correlation_id,omitzero"`
	ReplyTo       string            `json:"reply_to,omitzero"`
}

// AppendLine appends a stored task to b, as a line with its line end, and returns the
// result. Decoder reads the line as a request to store the same task: all that a request
// can set is in it. withTopic adds the topic. The error is ErrIntake, or names text that
// isn't valid UTF-8; then AppendLine returns b unchanged.
func AppendLine(b []byte, s *producer.Stored, withTopic bool) ([]byte, error) {
	if s.AMQP != nil {
		return b, ErrIntake
	}
	line := storedLine{
		ID: s.ID, At: duetime.Text(s.Due), ContentType: s.ContentType, Headers: s.Headers,
		RoutingKey: s.Options.RoutingKey, Priority: s.Options.Priority,
		CorrelationID: s.Options.CorrelationID, ReplyTo: s.Options.ReplyTo,
	}
	if s.ContentType == task.DefaultContentType {
		line.ContentType = ""
	}
	if withTopic {
		line.Topic = s.Topic
	}
	if s.Options.Expiration > 0 {
		line.Expiration = s.Options.Expiration.String()
	}
	if utf8.Valid(s.Payload) {
		line.Payload = string(s.Payload)
	} else {
		line.PayloadBase64 = s.Payload
	}
	text, err := json.Marshal(line, json.Deterministic(true), jsontext.AllowInvalidUTF8(false))
	if err != nil {
		return b, err
	}
	return append(append(b, text...), '\n'), nil
}
