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
	"io"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/task"
)

// Decoder turns lines of NDJSON into requests to schedule tasks. It also checks the rules
// for input, so that a bad line is known before any later line is sent.
type Decoder struct {
	// Topic of all lines. A line may repeat it, and may name no other topic. If it is
	// empty, each line must name its own.
	Topic      string
	IfAbsent   bool
	MaxPayload int // in bytes
	Now        func() time.Time
}

// Decode returns the request of one line. Its error names the wrong field. It compares
// the due time with this machine's clock: for a limit of 100 years that is as good as
// Redis's clock.
func (d Decoder) Decode(line []byte) (*Request, error) {
	r := &Request{Verb: "schedule"}
	fields, err := parseLine[loadLine](line)
	if err != nil {
		return r, err
	}
	if r.Topic, err = d.topic(fields.Topic); err != nil {
		return r, err
	}
	if err := fields.fill(r); err != nil {
		return r, err
	}
	r.IfAbsent = d.IfAbsent
	return r, r.Check(d.MaxPayload, d.Now())
}

// topic returns the topic of a line.
func (d Decoder) topic(own given[string]) (string, error) {
	topic, err := topicOf(own, d.Topic)
	if d.Topic != "" && topic != d.Topic {
		err = fmt.Errorf("topic: must be %s, as on the command line, or absent; got %q", d.Topic, Clip(topic))
	}
	return topic, err
}

// loadLine is a line that describes a task and may name its topic.
type loadLine struct {
	Topic given[string] `json:"topic"`
	taskLine
}

// taskLine is a line that describes a task.
type taskLine struct {
	ID          given[string]                   `json:"id"`
	Group       given[string]                   `json:"group"`
	In          given[string]                   `json:"in"`
	At          given[textOrNumber]             `json:"at"`
	Payload     given[textOrJSON]               `json:"payload"`
	Base64      given[string]                   `json:"payload_base64"`
	ContentType given[string]                   `json:"content_type"`
	Headers     given[map[string]given[string]] `json:"headers"`

	RoutingKey    given[string] `json:"routing_key"`
	Priority      given[int]    `json:"priority"`
	Expiration    given[string] `json:"expiration"`
	CorrelationID given[string] `json:"correlation_id"`
	ReplyTo       given[string] `json:"reply_to"`

	Recurrence given[ruleLine] `json:"recurrence"`
	// Series is the recurring task's ID, in a run that is a task of its own. Export writes it.
	Series given[string] `json:"series"`

	// AMQP is an amqpmsg.View, in place of the message's other fields.
	AMQP given[jsontext.Value] `json:"amqp"`
}

// fill sets the task of r, except for its topic.
func (f *taskLine) fill(r *Request) error {
	due, err := f.due()
	if err != nil {
		return err
	}
	if r.Options, err = f.options(); err != nil {
		return err
	}
	if r.AMQP, err = f.amqp(); err != nil {
		return err
	}
	if r.Recurrence, err = f.recurrence(); err != nil {
		return fmt.Errorf("recurrence.%w", err)
	}
	payload, err := f.payload()
	r.When = due
	r.ID, r.Group, r.Payload, r.ContentType, r.Headers = f.ID.value, f.Group.value, payload, f.contentType(), f.headers()
	return cmp.Or(err, f.setSeries(r))
}

// setSeries sets the header that holds the series of a run.
func (f *taskLine) setSeries(r *Request) error {
	switch {
	case !f.Series.ok:
		return nil
	case f.Recurrence.ok:
		return errors.New("series, recurrence: only one of them may be given")
	case r.AMQP != nil && r.AMQP.Headers == nil:
		r.AMQP.Headers = map[string]any{}
	case r.AMQP == nil && r.Headers == nil:
		r.Headers = map[string]string{}
	}
	if r.AMQP != nil {
		r.AMQP.Headers[task.HeaderSeries] = f.Series.value
	} else {
		r.Headers[task.HeaderSeries] = f.Series.value
	}
	return nil
}

// amqp returns the line's message of an intake, nil without it.
func (f *taskLine) amqp() (*task.AMQP, error) {
	if !f.AMQP.ok {
		return nil, nil
	}
	takes := []string{"id", "group", "in", "at", "payload", "payload_base64", "recurrence", "series", "amqp"}
	for name, given := range fieldsOf(*f) {
		if given && !slices.Contains(takes, name) {
			return nil, fmt.Errorf("%s, amqp: only one of them may be given", name)
		}
	}
	return amqpmsg.Parse(f.AMQP.value)
}

// contentType returns the line's content type. The default for a payload that is a JSON
// value is application/json, except with AMQP.
func (f *taskLine) contentType() string {
	if !f.ContentType.ok && f.Payload.value.json && !f.AMQP.ok {
		return "application/json"
	}
	return f.ContentType.value
}

// due returns the due time. Exactly one of its two fields must be given. With a recurrence
// neither need be given.
func (f *taskLine) due() (due task.When, err error) {
	switch {
	case f.In.ok && f.At.ok:
		return due, errors.New("in, at: only one of them may be given")
	case f.In.ok:
		due, err = duetime.When("in", f.In.value)
		return due, inField("in", err)
	case f.At.ok:
		due, err = duetime.When("at", string(f.At.value))
		return due, inField("at", err)
	case f.Recurrence.ok:
		return due, nil
	default:
		return due, errors.New("in, at: one of them is needed")
	}
}

// payload returns the payload, empty if neither of its two fields is given.
func (f *taskLine) payload() ([]byte, error) {
	if f.Payload.ok && f.Base64.ok {
		return nil, errors.New("payload, payload_base64: only one of them may be given")
	}
	if !f.Base64.ok {
		return f.Payload.value.bytes, nil
	}
	payload, err := base64.StdEncoding.Strict().DecodeString(f.Base64.value)
	return payload, inField("payload_base64", err)
}

func (f *taskLine) headers() map[string]string {
	if !f.Headers.ok {
		return nil
	}
	headers := make(map[string]string, len(f.Headers.value))
	for key, value := range f.Headers.value {
		headers[key] = value.value
	}
	return headers
}

// given is a value that a line may have; null is refused.
type given[T any] struct {
	ok    bool
	value T
}

// UnmarshalJSONFrom takes a T. It refuses null.
func (g *given[T]) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	switch in.PeekKind() {
	case jsontext.KindNull:
		return &json.SemanticError{JSONKind: jsontext.KindNull, GoType: reflect.TypeFor[T]()}
	case jsontext.KindEndObject, jsontext.KindEndArray:
		_, err := in.ReadToken() // fails: a value is missing
		return err
	}
	g.ok = true
	return json.UnmarshalDecode(in, &g.value)
}

// textOrNumber is a string, or a number as it is written.
type textOrNumber string

// UnmarshalJSONFrom takes a string or a number.
func (t *textOrNumber) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if in.PeekKind() != jsontext.KindNumber {
		return json.UnmarshalDecode(in, (*string)(t))
	}
	number, err := in.ReadToken()
	*t = textOrNumber(number.String())
	return err
}

// textOrJSON is the text of a string, or the unchanged bytes of another JSON value.
type textOrJSON struct {
	bytes []byte
	json  bool
}

// UnmarshalJSONFrom takes any value; given refuses null.
func (t *textOrJSON) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if in.PeekKind() == jsontext.KindString {
		var text string
		err := json.UnmarshalDecode(in, &text)
		t.bytes = []byte(text)
		return err
	}
	value, err := in.ReadValue()
	t.bytes, t.json = bytes.Clone(value), true
	return err
}

// parseLine parses exactly one JSON object into the fields of a line. With an error it
// returns the fields before the mistake.
//
// It is stricter than the standard library's encoding/json, which silently repairs such
// lines: a repaired ID or payload is a different one. So it refuses unknown and repeated
// fields, names in another case, invalid UTF-8, half a surrogate pair, and null.
func parseLine[T any](line []byte) (T, error) {
	var fields given[T]
	err := json.Unmarshal(line, &fields, json.RejectUnknownMembers(true))
	if err != nil && !utf8.Valid(line) {
		return fields.value, errors.New("not valid UTF-8; such a payload goes into payload_base64")
	}
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		// Text that isn't JSON can begin like a value of the wrong type: "not" begins
		// like null, and 2026-12-01 like a number.
		var whole jsontext.Value
		if broken := json.Unmarshal(line, &whole); broken != nil {
			err = broken
		}
	}
	switch {
	case errors.As(err, &syntax):
		err = syntaxError(syntax)
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		known, in := fieldsOf(fields.value), ""
		if semantic.JSONPointer.Parent() == "/recurrence" {
			known, in = fieldsOf(ruleLine{}), "recurrence"
		}
		err = inField(in, unknownField(semantic.JSONPointer.LastToken(), known))
	case errors.As(err, &semantic):
		err = inField(fieldName(semantic.JSONPointer), typeError(semantic))
	}
	return fields.value, err
}

func unknownField(name string, known iter.Seq2[string, bool]) error {
	var names []string
	for field := range known {
		names = append(names, field)
	}
	return fmt.Errorf("unknown field %q; known are %s", Clip(name), strings.Join(names, ", "))
}

// syntaxError describes a syntax error and its position. It doesn't quote the line.
func syntaxError(e *jsontext.SyntacticError) error {
	switch {
	case errors.Is(e.Err, jsontext.ErrDuplicateName) && strings.HasPrefix(string(e.JSONPointer), "/payload/"):
		return inField("payload", errors.New("an object in it gives a name twice"))
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return inField(fieldName(e.JSONPointer), errors.New("given twice"))
	case strings.HasPrefix(e.Err.Error(), "invalid surrogate pair"):
		return errors.New("half a surrogate pair in a \\u escape stands for no character; such a payload goes into " +
			"payload_base64")
	case errors.Is(e.Err, io.ErrUnexpectedEOF), errors.Is(e.Err, io.EOF):
		return errors.New("malformed JSON: the line ends too soon")
	}
	return fmt.Errorf("malformed JSON at byte %d: %w", e.ByteOffset+1, e.Err)
}

// typeError describes the type that a field wants and the type that it has. It doesn't
// quote the value.
func typeError(e *json.SemanticError) error {
	if e.Err != nil {
		return e.Err
	}
	want := "a JSON object"
	switch e.GoType.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Int:
		want = "a whole number"
	}
	if e.GoType == reflect.TypeFor[textOrJSON]() {
		want = "a string or another JSON value"
	}
	got := map[jsontext.Kind]string{
		jsontext.KindBeginObject: "an object", jsontext.KindBeginArray: "an array", jsontext.KindString: "a string",
		jsontext.KindNumber: "a number",
		jsontext.KindNull:   "null", jsontext.KindTrue: "true or false", jsontext.KindFalse: "true or false",
	}[e.JSONKind]
	return fmt.Errorf("want %s, got %s", want, got)
}

// fieldName returns the name, for messages, of the field at a JSON pointer (RFC 6901).
func fieldName(p jsontext.Pointer) string {
	if strings.HasPrefix(string(p), "/amqp/") || strings.HasPrefix(string(p), "/recurrence/") {
		return amqpmsg.Clip(strings.Join(slices.Collect(p.Tokens()), "."))
	}
	name := Clip(p.LastToken())
	if p.Parent() == "/headers" {
		return "header " + name
	}
	return name
}

func inField(name string, err error) error {
	if err == nil || name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// fieldsOf yields the names of a line's fields, in order, and whether each is given.
func fieldsOf(line any) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(line)) {
			if field.Anonymous {
				continue
			}
			if !yield(field.Tag.Get("json"), reflect.ValueOf(line).FieldByIndex(field.Index).FieldByName("ok").Bool()) {
				return
			}
		}
	}
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
