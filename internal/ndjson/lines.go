package ndjson

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/task"
)

// pipeLine is a line that holds a request.
type pipeLine struct {
	Verb      given[string] `json:"verb"`
	Topic     given[string] `json:"topic"`
	IfAbsent  given[bool]   `json:"if_absent"`
	IfPresent given[bool]   `json:"if_present"`
	taskLine
}

// Parse parses a line with a request, for topic if the line names none. With an error the
// request holds the parts that could be parsed. The producer library checks the rules for
// input.
func Parse(line []byte, topic string) (*Request, error) {
	fields, err := parseLine[pipeLine](line)
	r := &Request{Verb: fields.Verb.value}
	r.ID = fields.ID.value
	r.Topic, _ = topicOf(fields.Topic, topic) // fill reports the error
	if err == nil {
		err = r.fill(&fields)
	}
	return r, err
}

// topicOf returns the topic that a line names, else common.
func topicOf(own given[string], common string) (string, error) {
	switch {
	case own.ok:
		return own.value, nil
	case common == "":
		return "", errors.New("topic: is needed, here or with --topic")
	}
	return common, nil
}

// ParseID parses a line with an ID, blanks included. A line that begins with a double quote is
// a JSON string, so an ID can hold any character. Half a surrogate pair is an error.
func ParseID(line []byte) (id string, err error) {
	if !bytes.HasPrefix(line, []byte(`"`)) {
		return string(line), nil
	}
	err = json.Unmarshal(line, &id)
	switch {
	case err == nil:
		return id, nil
	case strings.Contains(err.Error(), "invalid surrogate pair"):
		return "", errors.New("id: half a surrogate pair in a \\u escape stands for no character")
	}
	return "", errors.New("it begins with a double quote, and is no JSON string")
}

// fill sets r from the fields of a line.
func (r *Request) fill(fields *pipeLine) error {
	if err := fields.suit(); err != nil {
		return err
	}
	if !fields.ID.ok {
		return errors.New("id: is needed")
	}
	if _, err := topicOf(fields.Topic, r.Topic); err != nil {
		return err
	}
	if r.Verb == "schedule" || r.Verb == "reschedule" {
		r.IfAbsent, r.IfPresent = fields.IfAbsent.value, fields.IfPresent.value
		return fields.taskLine.fill(r)
	}
	return nil
}

// suit refuses fields that the verb doesn't take: to ignore them would mislead the client.
func (f *pipeLine) suit() error {
	takes := []string{"verb", "topic", "id"}
	switch f.Verb.value {
	case "schedule":
		return nil // it takes all fields
	case "reschedule":
		takes = append(takes, "in", "at")
	case "cancel", "get":
	default:
		return fmt.Errorf("verb: want schedule, cancel, reschedule or get; got %q", Clip(f.Verb.value))
	}
	for name, given := range fieldsOf(*f) {
		if given && !slices.Contains(takes, name) {
			return fmt.Errorf("%s: %s takes no such field", name, f.Verb.value)
		}
	}
	return nil
}

// ParseExpiration parses a duration as duetime.Span does; an empty text is 0. It refuses an
// explicit 0, which could be mistaken for "at once".
func ParseExpiration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := duetime.Span(s)
	if err == nil && d == 0 {
		err = errors.New("must be 1ms or more")
	}
	return d, err
}

// options converts the line's fields for the message's options.
func (f *taskLine) options() (o task.Options, err error) {
	if p := f.Priority.value; p < 0 || p > 255 {
		return o, &task.RuleError{Field: "priority", Rule: "must be 0 to 255", Got: fmt.Sprint(p)}
	}
	if o.Expiration, err = ParseExpiration(f.Expiration.value); err != nil {
		return o, inField("expiration", err)
	}
	o.RoutingKey, o.CorrelationID, o.ReplyTo = f.RoutingKey.value, f.CorrelationID.value, f.ReplyTo.value
	o.Priority = uint8(f.Priority.value) //nolint:gosec // 0 to 255
	return o, nil
}

// Clip shortens text from the input for an error message.
func Clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
