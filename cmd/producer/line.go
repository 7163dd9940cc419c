package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// lineDecoder turns lines of NDJSON into requests for one topic. It refuses
// what encoding/json would mend in silence (unknown and repeated fields, names
// in another case, bytes that are not UTF-8, half a surrogate pair), because a
// mended ID or payload is another one. It checks the rules of input as well, so
// that a bad line is known before any line behind it is on its way.
type lineDecoder struct {
	topic      string
	ifAbsent   bool
	maxPayload int
	now        func() time.Time
}

// decode returns the request of one line, or an error that names the field.
func (d lineDecoder) decode(line []byte) (producer.Request, error) {
	fields := lineFields{known: taskFields()}
	if err := fields.parse(line); err != nil {
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

// taskFields are those of a line that is a task.
func taskFields() []string {
	return []string{"id", "in", "at", "payload", "payload_base64", "content_type", "headers"}
}

// lineFields holds a line's fields before they are given a meaning.
type lineFields struct {
	known   []string // the fields that a line may have
	text    map[string]string
	headers map[string]string
}

// parse reads exactly one JSON object of known fields. With an error it holds
// those in front of the mistake.
func (f *lineFields) parse(line []byte) error {
	if !utf8.Valid(line) {
		return errors.New("not valid UTF-8; such a payload goes into payload_base64")
	}
	if halfSurrogate(line) {
		return errors.New("half a surrogate pair in a \\u escape stands for no character; such a payload goes into payload_base64")
	}
	c := &cursor{line: line}
	f.text = make(map[string]string, 4)
	if err := c.object("", func(key string) error { return f.read(c, key) }); err != nil {
		return err
	}
	return c.end()
}

// read takes the value of the field called key.
func (f *lineFields) read(c *cursor, key string) error {
	if _, twice := f.text[key]; twice || key == "headers" && f.headers != nil {
		return fmt.Errorf("%s: given twice", key)
	}
	if !slices.Contains(f.known, key) {
		return fmt.Errorf("unknown field %q; known are %s", clip(key), strings.Join(f.known, ", "))
	}
	var err error
	switch key {
	case "at":
		if isNumeric(c.peek()) {
			f.text[key], err = c.number()
		} else {
			f.text[key], err = c.text(key)
		}
	case "headers":
		f.headers = make(map[string]string)
		err = c.object(key, func(name string) error { return f.readHeader(c, name) })
	case "if_absent":
		f.text[key], err = c.boolean(key)
	default:
		f.text[key], err = c.text(key)
	}
	return err
}

func (f *lineFields) readHeader(c *cursor, key string) error {
	if _, twice := f.headers[key]; twice {
		return fmt.Errorf("header %s: given twice", clip(key))
	}
	var err error
	f.headers[key], err = c.text("header " + clip(key))
	return err
}

// when gives the due time's fields their meaning.
func (f *lineFields) when() (when, error) {
	in, isIn := f.text["in"]
	at, isAt := f.text["at"]
	switch {
	case isIn && isAt:
		return when{}, errors.New("in, at: only one of them may be given")
	case isIn:
		w, err := parseIn(in)
		return w, inField("in", err)
	case isAt:
		w, err := parseAt(at)
		return w, inField("at", err)
	default:
		return when{}, errors.New("in, at: one of them is needed")
	}
}

// request is a task to be scheduled at w, but for its topic.
func (f *lineFields) request(w when) (producer.Request, error) {
	payload, err := f.payload()
	return producer.Request{
		ID:          f.text["id"],
		When:        w.producer(),
		Payload:     payload,
		ContentType: f.text["content_type"],
		Headers:     f.headers,
	}, err
}

// payload gives the payload's fields their meaning. Neither is an empty payload.
func (f *lineFields) payload() ([]byte, error) {
	text, isText := f.text["payload"]
	encoded, isEncoded := f.text["payload_base64"]
	if isText && isEncoded {
		return nil, errors.New("payload, payload_base64: only one of them may be given")
	}
	if !isEncoded {
		return []byte(text), nil
	}
	payload, err := base64.StdEncoding.Strict().DecodeString(encoded)
	return payload, inField("payload_base64", err)
}

func inField(name string, err error) error {
	if err == nil || name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// halfSurrogate tells whether a \u escape in line is one half of a surrogate
// pair without the other, which encoding/json turns into U+FFFD. Backslashes
// occur in valid JSON in strings alone, so strings need not be told apart.
func halfSurrogate(line []byte) bool {
	for i := bytes.IndexByte(line, '\\'); i >= 0 && i < len(line); i++ {
		if line[i] != '\\' {
			continue
		}
		unit, ok := escapedUnit(line[i:])
		switch {
		case !ok:
			i++ // the escaped character, which may be a backslash
		case unit >= 0xd800 && unit < 0xdc00:
			low, ok := escapedUnit(line[min(i+6, len(line)):])
			if !ok || low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 11
		case unit >= 0xdc00 && unit <= 0xdfff:
			return true
		default:
			i += 5
		}
	}
	return false
}

// escapedUnit reads the UTF-16 code unit of the \uXXXX that s begins with.
func escapedUnit(s []byte) (unit uint64, ok bool) {
	if len(s) < 6 || !slices.Equal(s[:2], []byte(`\u`)) {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(s[2:6]), 16, 32)
	return unit, err == nil
}
