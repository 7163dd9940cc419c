package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// lineDecoder turns lines of NDJSON into requests for one topic. It checks the rules
// of input as well, so that a bad line is known before any line behind it is on its
// way.
type lineDecoder struct {
	topic      string
	ifAbsent   bool
	maxPayload int
	now        func() time.Time
}

// decode returns the request of one line, and an error that names the field that is
// wrong. The due time is held against this machine's clock, which is as good as Redis's for a limit
// of 100 years.
func (d lineDecoder) decode(line []byte) (*request, error) {
	r := &request{verb: "schedule"}
	fields, err := parseLine[taskLine](line)
	if err != nil {
		return r, err
	}
	if err := fields.fill(r); err != nil {
		return r, err
	}
	r.Topic, r.IfAbsent = d.topic, d.ifAbsent
	return r, r.Check(d.maxPayload, d.now())
}

// taskLine is a line that is a task. The names are the fields of the JSON.
type taskLine struct {
	ID          given[string]                   `json:"id"`
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
}

// fill gives r the task to be scheduled, but for its topic.
func (f *taskLine) fill(r *request) error {
	due, err := f.due()
	if err != nil {
		return err
	}
	if r.Options, err = f.options(); err != nil {
		return err
	}
	payload, err := f.payload()
	r.setDue(due)
	r.ID, r.Payload, r.ContentType, r.Headers = f.ID.value, payload, f.contentType(), f.headers()
	return err
}

// contentType is what the line says; without a word a payload in JSON is JSON.
func (f *taskLine) contentType() string {
	if !f.ContentType.ok && f.Payload.value.json {
		return "application/json"
	}
	return f.ContentType.value
}

// due gives the due time's fields their meaning.
func (f *taskLine) due() (due dueTime, err error) {
	switch {
	case f.In.ok && f.At.ok:
		return due, errors.New("in, at: only one of them may be given")
	case f.In.ok:
		due, err = parseDue("in", f.In.value)
		return due, inField("in", err)
	case f.At.ok:
		due, err = parseDue("at", string(f.At.value))
		return due, inField("at", err)
	default:
		return due, errors.New("in, at: one of them is needed")
	}
}

// payload gives the payload's fields their meaning. Neither is an empty payload.
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

// given is a value that a line may have; null is none.
type given[T any] struct {
	ok    bool
	value T
}

// UnmarshalJSONFrom takes a T, and nothing that would have to be mended into one.
func (g *given[T]) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	switch in.PeekKind() {
	case jsontext.KindNull:
		return &json.SemanticError{JSONKind: jsontext.KindNull, GoType: reflect.TypeFor[T]()}
	case jsontext.KindEndObject, jsontext.KindEndArray:
		_, err := in.ReadToken() // which says that a value is missing
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

// textOrJSON is the text of a string, or another JSON value byte for byte as it is written.
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

// parseLine reads exactly one JSON object into the fields of a line. It refuses what
// the standard library's encoding/json would mend in silence (unknown and repeated
// fields, names in another case, bytes that are not UTF-8, half a surrogate pair, null),
// because a mended ID or payload is another one. With an error the fields in front of
// the mistake are read.
func parseLine[T any](line []byte) (T, error) {
	var fields given[T]
	if !utf8.Valid(line) {
		return fields.value, errors.New("not valid UTF-8; such a payload goes into payload_base64")
	}
	err := json.Unmarshal(line, &fields, json.RejectUnknownMembers(true))
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		// Of what is no JSON the beginning can be a value of the wrong type: of "not"
		// the n of null, of 2026-12-01 a number.
		var whole jsontext.Value
		if broken := json.Unmarshal(line, &whole); broken != nil {
			err = broken
		}
	}
	switch {
	case errors.As(err, &syntax):
		err = syntaxError(syntax)
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		var known []string
		for field := range fieldsOf(fields.value) {
			known = append(known, field)
		}
		err = fmt.Errorf("unknown field %q; known are %s", clip(semantic.JSONPointer.LastToken()), strings.Join(known, ", "))
	case errors.As(err, &semantic):
		err = inField(fieldName(semantic.JSONPointer), typeError(semantic))
	}
	return fields.value, err
}

// syntaxError says what of a line is no JSON, and where, but not what stands there.
func syntaxError(e *jsontext.SyntacticError) error {
	switch {
	case errors.Is(e.Err, jsontext.ErrDuplicateName) && strings.HasPrefix(string(e.JSONPointer), "/payload/"):
		return inField("payload", errors.New("an object in it gives a name twice"))
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return inField(fieldName(e.JSONPointer), errors.New("given twice"))
	case strings.HasPrefix(e.Err.Error(), "invalid surrogate pair"):
		return errors.New("half a surrogate pair in a \\u escape stands for no character; such a payload goes into payload_base64")
	case errors.Is(e.Err, io.ErrUnexpectedEOF), errors.Is(e.Err, io.EOF):
		return errors.New("malformed JSON: the line ends too soon")
	}
	return fmt.Errorf("malformed JSON at byte %d: %w", e.ByteOffset+1, e.Err)
}

// typeError says which type a field wants, and which it has, never its value.
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
		jsontext.KindBeginObject: "an object", jsontext.KindBeginArray: "an array", jsontext.KindString: "a string", jsontext.KindNumber: "a number",
		jsontext.KindNull: "null", jsontext.KindTrue: "true or false", jsontext.KindFalse: "true or false",
	}[e.JSONKind]
	return fmt.Errorf("want %s, got %s", want, got)
}

// fieldName is the field that a JSON pointer (RFC 6901) leads to, as messages name it.
func fieldName(p jsontext.Pointer) string {
	name := clip(p.LastToken())
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

// fieldsOf yields the fields of a line, in order, and whether it has them.
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

// errDuration and errInstant say what the two ways to give a due time accept.
var (
	errDuration = errors.New("want a duration such as 30m, 1h30m, 500ms or 2d, of at most 100 years")
	errInstant  = errors.New("want RFC 3339 with a zone, such as 2026-12-01T10:00:00Z, or Unix milliseconds, such as 1796119200000")
)

// dueTime is a due time as a user gives it: an instant, or with relative a while
// from Redis's now.
type dueTime struct {
	relative bool
	at       time.Time
	in       time.Duration
}

// parseDue reads a due time: "in" or "at", as field says.
func parseDue(field, value string) (due dueTime, err error) {
	if due.relative = field == "in"; due.relative {
		due.in, err = parseIn(value)
	} else {
		due.at, err = parseAt(value)
	}
	return due, err
}

// when is what the library takes.
func (d dueTime) when() producer.When {
	if d.relative {
		return producer.In(d.in)
	}
	return producer.At(d.at)
}

// past is how long ago the due time was when its task was stored, by Redis's clock: the
// task got Redis's now in its place. Without a past it is not positive.
func (d dueTime) past(stored time.Time) time.Duration {
	if d.relative {
		return -d.in
	}
	return stored.Sub(d.at)
}

// pastDue is how long ago a due time may be without a word: two clocks that differ and
// a slow start make some seconds. Longer ago, the user may have meant another time.
const pastDue = time.Minute

// ago is a time in the past, at least a minute ago, for people.
func ago(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd ago", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh ago", d/time.Hour)
	default:
		return fmt.Sprintf("%dm ago", d/time.Minute)
	}
}

// parseIn reads Go's durations, with whole or fractional days in front: 2d,
// 1.5d, 1d12h, -2d.
func parseIn(s string) (time.Duration, error) {
	unsigned := strings.TrimLeft(s, "+-")
	days, rest, found := strings.Cut(unsigned, "d")
	if !found {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, errDuration
		}
		return d, nil
	}
	// An hour is the largest unit time.ParseDuration knows, and it catches the
	// overflow of what is scaled to it.
	whole, err := time.ParseDuration(days + "h")
	if err != nil || len(s)-len(unsigned) > 1 || strings.ContainsAny(days, "hmsuµn+-") {
		return 0, errDuration
	}
	total := whole * 24
	if total/24 != whole {
		return 0, errDuration
	}
	if rest != "" {
		part, err := time.ParseDuration(rest)
		if err != nil || strings.ContainsAny(rest, "+-") || total+part < total {
			return 0, errDuration
		}
		total += part
	}
	if strings.HasPrefix(s, "-") {
		total = -total
	}
	return total, nil
}

// parseAt reads RFC 3339 or Unix milliseconds. Unix seconds are refused: they would be
// long past, and their tasks delivered at once.
func parseAt(s string) (time.Time, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		if task.LooksLikeSeconds(ms) {
			return time.Time{}, fmt.Errorf("looks like Unix seconds; want milliseconds: %d, or RFC 3339", ms*1000)
		}
		return time.UnixMilli(ms).UTC(), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, errInstant
	}
	return at.UTC(), nil
}
