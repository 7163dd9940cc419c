package ndjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/duefleet/duefleet/internal/amqpmsg"
)

// object is a JSON object. Its methods return the values of its fields; they keep the first
// error, and return zero for a value that is absent or wrong.
type object struct {
	within string // stands before names in errors: "" for a line, "recurrence." for its rule
	fields []field
	err    error
}

// field is one of the fields of an object.
type field struct {
	name  []byte
	value jsontext.Value // valid JSON, of the line's bytes
	asked bool           // a method looked for it
}

// mostFields is how many fields of a line are read. No line has as many that are known.
const mostFields = 64

// parse parses exactly one JSON object, in place of the last one. With an error it returns the
// fields before the mistake.
//
// It is stricter than the standard library's encoding/json, which silently repairs such
// lines: a repaired ID or payload is a different one. So it refuses repeated fields, invalid
// UTF-8 and half a surrogate pair. The methods refuse null.
func (o *object) parse(line []byte) {
	o.fields, o.err = o.fields[:0], nil
	if !jsontext.Value(line).IsValid() {
		line, o.err = mistake(line)
	}
	o.read(line, mostFields)
	if o.err == nil && jsontext.Value(line).Kind() != jsontext.KindBeginObject {
		o.err = wrongType("a JSON object", line)
	}
}

// mistake returns the bytes before the mistake in a line that isn't JSON, and describes it. It
// doesn't quote the line.
func mistake(line []byte) ([]byte, error) {
	var whole jsontext.Value
	var e *jsontext.SyntacticError
	err := json.Unmarshal(line, &whole)
	if !errors.As(err, &e) {
		return nil, err // there is no other kind
	}
	before := line[:e.ByteOffset]
	switch {
	case !utf8.Valid(line):
		return before, errors.New("not valid UTF-8; such a payload goes into payload_base64")
	case errors.Is(e.Err, jsontext.ErrDuplicateName) && strings.HasPrefix(string(e.JSONPointer), "/payload/"):
		return before, inField("payload", errors.New("an object in it gives a name twice"))
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return before, inField(pathOf(e.JSONPointer), errors.New("given twice"))
	case strings.HasPrefix(e.Err.Error(), "invalid surrogate pair"):
		return before, errors.New("half a surrogate pair in a \\u escape stands for no character; such a payload goes into " +
			"payload_base64")
	case errors.Is(e.Err, io.ErrUnexpectedEOF), errors.Is(e.Err, io.EOF):
		return before, errors.New("malformed JSON: the line ends too soon")
	}
	return before, fmt.Errorf("malformed JSON at byte %d: %w", e.ByteOffset+1, e.Err)
}

// pathOf returns the name, for messages, of the field at a JSON pointer (RFC 6901).
func pathOf(p jsontext.Pointer) string {
	if strings.HasPrefix(string(p), "/amqp/") || strings.HasPrefix(string(p), "/recurrence/") {
		return amqpmsg.Clip(strings.Join(slices.Collect(p.Tokens()), "."))
	}
	name := Clip(p.LastToken())
	if p.Parent() == "/headers" {
		return "header " + name
	}
	return name
}

// read reads the first fields of a JSON object, or of the beginning of one.
func (o *object) read(text []byte, most int) {
	text, found := bytes.CutPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{"))
	for found && len(o.fields) < most {
		var f field
		f.name, text = cut(text)
		f.value, text = cut(text)
		if found = f.value != nil; found {
			f.name = unquoted(f.name)
			o.fields = append(o.fields, f)
		}
	}
}

// cut cuts the first value off the rest of a JSON object. It returns nil at the end. The library
// has checked the text, so here it is enough to find the value's end.
func cut(text []byte) (value, rest []byte) {
	begin := 0
	for begin < len(text) && strings.IndexByte(" \t\r\n:,", text[begin]) >= 0 {
		begin++
	}
	depth := 0
	for end := begin; end < len(text); end++ {
		switch text[end] {
		case '"':
			end += stringEnd(text[end:])
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth == 0 {
				return nil, nil
			}
			depth--
		default:
			if end+1 < len(text) && strings.IndexByte(" \t\r\n,}]", text[end+1]) < 0 {
				continue
			}
		}
		if depth == 0 && end < len(text) {
			return text[begin : end+1], text[end+1:]
		}
	}
	return nil, nil
}

// stringEnd returns the index of the quote that ends the string at the beginning of text, or
// the text's length.
func stringEnd(text []byte) int {
	for end := 1; end < len(text); end++ {
		n := bytes.IndexByte(text[end:], '"')
		if n < 0 {
			break
		}
		end += n
		before := bytes.TrimRight(text[:end], `\`)
		if (end-len(before))%2 == 0 { // the quote isn't escaped
			return end
		}
	}
	return len(text)
}

// unquoted returns the text of a JSON string. It may share its bytes.
func unquoted(value jsontext.Value) []byte {
	if bytes.IndexByte(value, '\\') < 0 {
		return value[1 : len(value)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, value) // it is valid
	return text
}

// fail keeps the first error, which is about a field.
func (o *object) fail(name string, err error) {
	if o.err == nil && err != nil {
		o.err = inField(o.within+Clip(name), err)
	}
}

func inField(name string, err error) error {
	if err == nil {
		return nil
	}
	return &FieldError{Field: name, Err: err}
}

// find returns the value of a field, nil without it.
func (o *object) find(name string) jsontext.Value {
	for i := range o.fields {
		if f := &o.fields[i]; string(f.name) == name {
			f.asked = true
			return f.value
		}
	}
	return nil
}

func (o *object) has(name string) bool { return o.find(name) != nil }

// unasked returns the name of the first field that no method looked for.
func (o *object) unasked() (name string, found bool) {
	for i := range o.fields {
		if !o.fields[i].asked {
			return string(o.fields[i].name), true
		}
	}
	return "", false
}

// text returns a string.
func (o *object) text(name string) string { return o.textOf(name, o.find(name)) }

func (o *object) textOf(name string, value jsontext.Value) string {
	if value == nil || !o.is(name, value, "a string", jsontext.KindString) {
		return ""
	}
	return string(unquoted(value))
}

// textOrNumber returns a string, or a number as it is written.
func (o *object) textOrNumber(name string) string {
	if value := o.find(name); value.Kind() == jsontext.KindNumber {
		return string(value)
	}
	return o.text(name)
}

// whole returns a whole number.
func (o *object) whole(name string) int {
	value := o.find(name)
	if value == nil || !o.is(name, value, "a whole number", jsontext.KindNumber) {
		return 0
	}
	n, err := strconv.Atoi(string(value))
	if err != nil {
		o.fail(name, errors.New("want a whole number of 64 bits"))
	}
	return n
}

// flag returns true or false.
func (o *object) flag(name string) bool {
	value := o.find(name)
	return value != nil && o.is(name, value, "true or false", jsontext.KindTrue, jsontext.KindFalse) && value[0] == 't'
}

// object returns an object, nil without it. Within stands before the names of its fields in
// errors.
func (o *object) object(name, within string) *object {
	value := o.find(name)
	if value == nil || !o.is(name, value, "a JSON object", jsontext.KindBeginObject) {
		return nil
	}
	inner := &object{within: within}
	inner.read(value, math.MaxInt)
	return inner
}

// is reports whether a value is of a kind.
func (o *object) is(name string, value jsontext.Value, want string, kinds ...jsontext.Kind) bool {
	if slices.Contains(kinds, value.Kind()) {
		return true
	}
	o.fail(name, wrongType(want, value))
	return false
}

// wrongType describes the type that a value should have and the type that it has. It doesn't
// quote the value.
func wrongType(want string, value jsontext.Value) error {
	got := map[jsontext.Kind]string{
		jsontext.KindBeginObject: "an object", jsontext.KindBeginArray: "an array", jsontext.KindString: "a string",
		jsontext.KindNumber: "a number",
		jsontext.KindNull:   "null", jsontext.KindTrue: "true or false", jsontext.KindFalse: "true or false",
	}[value.Kind()]
	return fmt.Errorf("want %s, got %s", want, got)
}

func unknownField(name string, known []string) error {
	list := strings.Join(known, ", ")
	return &FieldError{Field: Clip(name), Err: errors.New("unknown field; known are " + list),
		text: fmt.Sprintf("unknown field %q; known are %s", Clip(name), list)}
}
