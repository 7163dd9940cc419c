// Package ndjson reads requests to schedule, cancel, reschedule or get tasks from lines
// of NDJSON, and does a stream of them in batches. It also writes stored tasks as such
// lines.
package ndjson

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/task"
)

// Decoder turns lines of NDJSON into requests to schedule tasks. It also checks the rules
// for input, so that a bad line is known before any later line is sent. It is for one goroutine
// at a time.
type Decoder struct {
	// Topic of all lines. A line may repeat it, and may name no other topic. If it is
	// empty, each line must name its own.
	Topic      string
	IfAbsent   bool
	MaxPayload int // in bytes
	Now        func() time.Time

	fields object
}

// Decode returns the request of one line. Its error names the wrong field. It compares
// the due time with this machine's clock: for a limit of 100 years that is as good as
// Redis's clock.
func (d *Decoder) Decode(line []byte) (*Request, error) {
	r, o := &Request{Verb: "schedule"}, &d.fields
	if o.parse(line); o.err != nil {
		return r, o.err
	}
	r.Topic = o.topic(d.Topic)
	if d.Topic != "" && r.Topic != d.Topic {
		o.fail("topic", fmt.Errorf("must be %s, as on the command line, or absent; got %q", d.Topic, Clip(r.Topic)))
	}
	r.fill(o)
	if err := cmp.Or(r.suit(o, "topic"), o.err); err != nil {
		return r, err
	}
	r.IfAbsent = d.IfAbsent
	return r, r.Check(d.MaxPayload, d.Now())
}

// topic returns the topic that a line names, else common.
func (o *object) topic(common string) string {
	if o.has("topic") {
		return o.text("topic")
	}
	if common == "" {
		o.fail("topic", errors.New("is needed, here or with --topic"))
	}
	return common
}

// suit refuses fields that nobody asked for: to ignore them would mislead the client. A line
// may have the first ones, and all fields of a task.
func (r *Request) suit(o *object, first ...string) error {
	name, found := o.unasked()
	if !found {
		return nil
	}
	known := append(slices.Clip(first), "id", "group", "in", "at", "payload", "payload_base64", "content_type", "headers",
		"routing_key", "priority", "expiration", "correlation_id", "reply_to", "recurrence", "series", "amqp")
	switch {
	case !slices.Contains(known, name):
		return unknownField(name, known)
	case r.Verb == "schedule":
		return inField(name+", amqp", errors.New("only one of them may be given"))
	}
	return inField(name, fmt.Errorf("%s takes no such field", r.Verb))
}

// fill sets the task of r, except for its topic.
func (r *Request) fill(o *object) {
	r.ID, r.Group, r.When = o.text("id"), o.text("group"), o.due()
	r.Recurrence = o.recurrence()
	text, isJSON := o.payload()
	r.Payload = text
	if r.AMQP = o.amqp(); r.AMQP == nil && !o.has("amqp") { // it stands in place of the other fields
		r.Options, r.Headers = o.options(), o.headers()
		if r.ContentType = o.text("content_type"); isJSON && !o.has("content_type") {
			r.ContentType = "application/json"
		}
	}
	r.setSeries(o)
}

// setSeries sets the header that holds the series of a run.
func (r *Request) setSeries(o *object) {
	if !o.has("series") {
		return
	}
	series := o.text("series")
	if r.Recurrence != nil {
		o.fail("series, recurrence", errors.New("only one of them may be given"))
	}
	switch {
	case r.AMQP != nil && r.AMQP.Headers == nil:
		r.AMQP.Headers = map[string]any{}
	case r.AMQP == nil && r.Headers == nil:
		r.Headers = map[string]string{}
	}
	if r.AMQP != nil {
		r.AMQP.Headers[task.HeaderSeries] = series
	} else {
		r.Headers[task.HeaderSeries] = series
	}
}

// amqp returns the line's message of an intake, an amqpmsg.View; nil without it.
func (o *object) amqp() *task.AMQP {
	value := o.find("amqp")
	if value == nil || value.Kind() == jsontext.KindNull && !o.is("amqp", value, "a JSON object") {
		return nil
	}
	message, err := amqpmsg.Parse(value)
	if err != nil && o.err == nil {
		o.err = &FieldError{Field: "amqp", Err: err, text: err.Error()} // it names the part that is wrong
	}
	return message
}

// due returns the due time. Exactly one of its two fields must be given. With a recurrence
// neither need be given.
func (o *object) due() (due task.When) {
	hasIn, hasAt := o.has("in"), o.has("at")
	var err error
	switch {
	case hasIn && hasAt:
		o.fail("in, at", errors.New("only one of them may be given"))
	case hasIn:
		due, err = duetime.When("in", o.text("in"))
		o.fail("in", err)
	case hasAt:
		due, err = duetime.When("at", o.textOrNumber("at"))
		o.fail("at", err)
	case !o.has("recurrence"):
		o.fail("in, at", errors.New("one of them is needed"))
	}
	return due
}

// payload returns the payload, and whether it is a JSON value and no string. The payload is
// empty if neither of its two fields is given.
func (o *object) payload() (payload []byte, isJSON bool) {
	value, encoded := o.find("payload"), o.find("payload_base64")
	if value != nil && encoded != nil {
		o.fail("payload, payload_base64", errors.New("only one of them may be given"))
	}
	switch value.Kind() {
	case jsontext.KindInvalid:
	case jsontext.KindString:
		return bytes.Clone(unquoted(value)), false
	case jsontext.KindNull:
		o.fail("payload", wrongType("a string or another JSON value", value))
	default:
		return bytes.Clone(value), true
	}
	if encoded == nil || !o.is("payload_base64", encoded, "a string", jsontext.KindString) {
		return nil, false
	}
	payload, err := base64.StdEncoding.Strict().AppendDecode(nil, unquoted(encoded))
	o.fail("payload_base64", err)
	return payload, false
}

// headers returns the message's headers, nil without them.
func (o *object) headers() map[string]string {
	inner := o.object("headers", "header ")
	if inner == nil {
		return nil
	}
	headers := make(map[string]string, len(inner.fields))
	for _, f := range inner.fields {
		headers[string(f.name)] = inner.textOf(string(f.name), f.value)
	}
	if o.err == nil {
		o.err = inner.err
	}
	return headers
}

// Past returns how long before Redis's now a due time was when its task was stored. Such a
// task is due at stored, which is Redis's now. If the due time wasn't in the past, Past
// returns 0 or less. So it does for the first run of a recurring task without a due time.
func Past(when task.When, stored time.Time) time.Duration {
	if when.IsZero() {
		return 0
	}
	return stored.Sub(when.Time(stored))
}
