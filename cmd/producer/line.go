package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// lineDecoder turns lines of NDJSON into requests for one topic. It refuses
// what the standard library's encoding/json would mend in silence (unknown and
// repeated fields, names in another case, bytes that are not UTF-8, half a surrogate
// pair, null), because a mended ID or payload is another one. It checks the rules of
// input as well, so that a bad line is known before any line behind it is on its way.
type lineDecoder struct {
	topic      string
	ifAbsent   bool
	maxPayload int
	now        func() time.Time
}

// decode returns the request of one line, or an error that names the field.
func (d lineDecoder) decode(line []byte) (producer.Request, error) {
	var fields taskLine
	if err := parseLine(line, &fields); err != nil {
		return producer.Request{}, err
	}
	w, err := fields.when()
	if err != nil {
		return producer.Request{}, err
	}
	req, err := fields.request(w)
	if err != nil {
		return producer.Request{}, err
	}
	req.Topic, req.IfAbsent = d.topic, d.ifAbsent
	return req, d.check(req, w)
}

// check holds a line to the rules. The due time is held against this machine's
// clock, which is as good as Redis's for a limit of 100 years.
func (d lineDecoder) check(req producer.Request, w when) error {
	if err := task.CheckID(req.ID); err != nil {
		return err
	}
	if err := task.CheckPayload(req.Payload, d.maxPayload); err != nil {
		return err
	}
	if err := task.CheckContentType(req.ContentType); err != nil {
		return err
	}
	if err := task.CheckHeaders(req.Headers); err != nil {
		return err
	}
	now := d.now()
	return task.CheckDue(w.due(now), now)
}

// taskLine is a line that is a task. The names are the fields of the JSON.
type taskLine struct {
	ID          text         `json:"id"`
	In          text         `json:"in"`
	At          textOrNumber `json:"at"`
	Payload     text         `json:"payload"`
	Base64      text         `json:"payload_base64"`
	ContentType text         `json:"content_type"`
	Headers     headerFields `json:"headers"`
}

// text is a string that may be given.
type text struct {
	given bool
	value string
}

// UnmarshalJSONFrom takes a string, and nothing else.
func (t *text) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if err := want(in.PeekKind(), "a string", jsontext.KindString); err != nil {
		return err
	}
	return t.take(in)
}

func (t *text) take(in *jsontext.Decoder) error {
	token, err := in.ReadToken()
	if err == nil {
		t.given, t.value = true, token.String()
	}
	return err
}

// textOrNumber is a string or a number that may be given, as it is written.
type textOrNumber struct{ text }

// UnmarshalJSONFrom takes a string or a number.
func (t *textOrNumber) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if in.PeekKind() == jsontext.KindNumber {
		return t.take(in)
	}
	return t.text.UnmarshalJSONFrom(in)
}

// flag is a boolean that may be given.
type flag struct{ given, value bool }

// UnmarshalJSONFrom takes true or false.
func (f *flag) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if err := want(in.PeekKind(), "true or false", jsontext.KindTrue, jsontext.KindFalse); err != nil {
		return err
	}
	f.given, f.value = true, in.PeekKind() == jsontext.KindTrue
	return in.SkipValue()
}

// headerFields are strings by name; nil: they aren't given.
type headerFields map[string]string

// UnmarshalJSONFrom takes an object of strings.
func (h *headerFields) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if err := want(in.PeekKind(), "a JSON object", jsontext.KindBeginObject); err != nil {
		return err
	}
	var all map[string]text
	if err := json.UnmarshalDecode(in, &all); err != nil {
		return err
	}
	*h = make(headerFields, len(all))
	for key, value := range all {
		(*h)[key] = value.value
	}
	return nil
}

// want says which type a field wants, and which it has, never its value. Where there is
// none of JSON's it leaves it to the reader to say what is wrong.
func want(kind jsontext.Kind, what string, kinds ...jsontext.Kind) error {
	got, known := map[jsontext.Kind]string{
		jsontext.KindBeginObject: "an object", jsontext.KindBeginArray: "an array", jsontext.KindString: "a string", jsontext.KindNumber: "a number",
		jsontext.KindNull: "null", jsontext.KindTrue: "true or false", jsontext.KindFalse: "true or false",
	}[kind]
	if !known || slices.Contains(kinds, kind) {
		return nil
	}
	return fmt.Errorf("want %s, got %s", what, got)
}

// parseLine reads exactly one JSON object into the fields of a line. With an error
// those in front of the mistake are read.
func parseLine(line []byte, fields any) error {
	if !utf8.Valid(line) {
		return errors.New("not valid UTF-8; such a payload goes into payload_base64")
	}
	if err := want(jsontext.Value(line).Kind(), "a JSON object", jsontext.KindBeginObject); err != nil {
		return err
	}
	err := json.Unmarshal(line, fields, json.RejectUnknownMembers(true))
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntax):
		return syntaxError(syntax)
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		return fmt.Errorf("unknown field %q; known are %s", clip(semantic.JSONPointer.LastToken()), strings.Join(fieldsOf(fields), ", "))
	case errors.As(err, &semantic):
		return inField(fieldName(semantic.JSONPointer), semantic.Err)
	}
	return err
}

// syntaxError says what of a line is no JSON, and where, but not what stands there.
func syntaxError(e *jsontext.SyntacticError) error {
	switch {
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return inField(fieldName(e.JSONPointer), errors.New("given twice"))
	case strings.HasPrefix(e.Err.Error(), "invalid surrogate pair"):
		return errors.New("half a surrogate pair in a \\u escape stands for no character; such a payload goes into payload_base64")
	}
	if errors.Is(e.Err, io.ErrUnexpectedEOF) || errors.Is(e.Err, io.EOF) {
		return errors.New("malformed JSON: the line ends too soon")
	}
	return fmt.Errorf("malformed JSON at byte %d: %w", e.ByteOffset+1, e.Err)
}

// fieldName is the field that a JSON pointer (RFC 6901) leads to, as messages name it.
func fieldName(p jsontext.Pointer) string {
	name := clip(p.LastToken())
	if p.Parent() == "/headers" {
		return "header " + name
	}
	return name
}

// fieldsOf are the names of a line's fields.
func fieldsOf(fields any) (names []string) {
	for field := range reflect.TypeOf(fields).Elem().Fields() {
		if field.Anonymous {
			names = append(names, fieldsOf(reflect.New(field.Type).Interface())...)
			continue
		}
		names = append(names, field.Tag.Get("json"))
	}
	return names
}

// when gives the due time's fields their meaning.
func (f *taskLine) when() (when, error) {
	switch {
	case f.In.given && f.At.given:
		return when{}, errors.New("in, at: only one of them may be given")
	case f.In.given:
		w, err := parseIn(f.In.value)
		return w, inField("in", err)
	case f.At.given:
		w, err := parseAt(f.At.value)
		return w, inField("at", err)
	default:
		return when{}, errors.New("in, at: one of them is needed")
	}
}

// request is a task to be scheduled at w, but for its topic.
func (f *taskLine) request(w when) (producer.Request, error) {
	payload, err := f.payload()
	return producer.Request{
		ID: f.ID.value, When: w.producer(), Payload: payload, ContentType: f.ContentType.value, Headers: f.Headers,
	}, err
}

// payload gives the payload's fields their meaning. Neither is an empty payload.
func (f *taskLine) payload() ([]byte, error) {
	if f.Payload.given && f.Base64.given {
		return nil, errors.New("payload, payload_base64: only one of them may be given")
	}
	if !f.Base64.given {
		return []byte(f.Payload.value), nil
	}
	payload, err := base64.StdEncoding.Strict().DecodeString(f.Base64.value)
	return payload, inField("payload_base64", err)
}

func inField(name string, err error) error {
	if err == nil || name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}
