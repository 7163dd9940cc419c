package ndjson

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/task"
)

// Parser turns lines of NDJSON into requests of each verb. It is for one goroutine at a time.
type Parser struct {
	// Topic of lines that name none. If it is empty, each line must name its own.
	Topic string

	fields object
}

// Parse parses a line with a request. With an error the request holds the parts that could be
// parsed. The producer library checks the rules for input.
func (p *Parser) Parse(line []byte) (*Request, error) {
	o := &p.fields
	o.parse(line)
	r := &Request{Verb: o.text("verb")}
	if !slices.Contains([]string{"schedule", "reschedule", "cancel", "get"}, r.Verb) {
		o.fail("verb", fmt.Errorf("want schedule, cancel, reschedule or get; got %q", Clip(r.Verb)))
	}
	early := o.err // nobody asks for the other fields then
	if !o.has("id") {
		o.fail("id", errors.New("is needed"))
	}
	r.ID, r.Topic = o.text("id"), o.topic(p.Topic)
	if early != nil {
		return r, early
	}
	switch r.Verb {
	case "schedule":
		r.IfAbsent, r.IfPresent = o.flag("if_absent"), o.flag("if_present")
		r.fill(o)
	case "reschedule":
		r.When = o.due()
	}
	return r, cmp.Or(r.suit(o, "verb", "topic", "if_absent", "if_present"), o.err)
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

// options returns the message's options.
func (o *object) options() (options task.Options) {
	priority := o.whole("priority")
	if priority < 0 || priority > 255 {
		o.fail("priority", fmt.Errorf("must be 0 to 255; got %d", priority))
	}
	options.Priority = uint8(priority) //nolint:gosec // 0 to 255
	var err error
	if o.has("expiration") {
		options.Expiration, err = ParseExpiration(o.text("expiration"))
		o.fail("expiration", err)
	}
	options.RoutingKey, options.ReplyTo = o.text("routing_key"), o.text("reply_to")
	options.CorrelationID = o.text("correlation_id")
	return options
}

// Clip shortens text from the input for an error message.
func Clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
