package ndjson

import (
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// storedLine is a line that Decoder reads. Its fields are in the order of loadLine.
type storedLine struct {
	Topic         string            `json:"topic,omitzero"`
	ID            string            `json:"id"`
	Group         string            `json:"group,omitzero"`
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
	Recurrence    *Recurrence       `json:"recurrence,omitzero"`
	Series        string            `json:"series,omitzero"`
	AMQP          *amqpmsg.View     `json:"amqp,omitzero"`
}

// AppendLine appends a stored task to b, as a line with its line end, and returns the
// result. Decoder reads the line as a request to store the same task: all that a request
// can set is in it. A recurring task's first run is then the stored one, at its due time, moved
// or not. withTopic adds the topic. An error names text that isn't valid UTF-8;
// then AppendLine returns b unchanged.
func AppendLine(b []byte, s *producer.Stored, withTopic bool) ([]byte, error) {
	line := storedLine{
		ID: s.ID, Group: s.Group, At: duetime.Text(s.Due), ContentType: s.ContentType, Headers: s.Headers,
		RoutingKey: s.Options.RoutingKey, Priority: s.Options.Priority,
		CorrelationID: s.Options.CorrelationID, ReplyTo: s.Options.ReplyTo, AMQP: amqpmsg.NewView(s.AMQP),
		Recurrence: NewRecurrence(s.Recurrence), Series: s.Series,
	}
	if s.ContentType == task.DefaultContentType || s.AMQP != nil { // AMQP has a content type of its own
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
