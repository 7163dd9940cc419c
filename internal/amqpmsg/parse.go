package amqpmsg

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/task"
)

// Parse returns the message of a View in JSON. All fields are optional, and a property with
// a zero value is one that the message doesn't have. The text must be valid JSON in UTF-8 in
// which no object has a name twice. The error names a field of another type, an unknown one
// or a bad value, beginning with "amqp". Check checks the rest.
func Parse(text []byte) (*task.AMQP, error) {
	a := &task.AMQP{}
	fields, err := objectOf(text, "routing_key", "properties", "headers", "routing_key_base64", "properties_base64",
		"headers_base64")
	if err != nil {
		return nil, in("amqp", err)
	}
	a.RoutingKey, err = fields.routingKey()
	if err == nil {
		a.Properties, err = fields.properties()
	}
	if err == nil {
		a.Headers, err = fields.table("headers", "headers_base64", 0)
	}
	if len(a.Headers) == 0 {
		a.Headers = nil
	}
	return a, in("amqp", err)
}

// fieldError is an error with the path of its field.
type fieldError struct {
	path string
	err  error
}

func (e *fieldError) Error() string { return Clip(e.path) + ": " + e.err.Error() }

func (e *fieldError) Unwrap() error { return e.err }

// in adds the name of a field to an error; nil for nil.
func in(name string, err error) error {
	var inner *fieldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &inner):
		inner.path = join(name, inner.path)
		return inner
	}
	return &fieldError{name, err}
}

// object is a JSON object, with the text of each field.
type object map[string]json.RawMessage

// objectOf returns an object whose fields are among the known ones; none known: any.
func objectOf(text []byte, known ...string) (o object, err error) {
	if err := decodeJSON(text, &o, "an object"); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if len(known) > 0 && !slices.Contains(known, name) {
			return nil, fmt.Errorf("unknown field %q; known are %s", Clip(name), strings.Join(known, ", "))
		}
	}
	return o, nil
}

// decodeJSON decodes a text that isn't null.
func decodeJSON(text []byte, to any, want string) error {
	if string(text) == "null" || json.Unmarshal(text, to) != nil {
		return fmt.Errorf("want %s", want)
	}
	return nil
}

// text returns the text of a field, "" without it.
func (o object) text(name string) (text string, err error) {
	if field, there := o[name]; there {
		err = in(name, decodeJSON(field, &text, "a string"))
	}
	return text, err
}

// base64 returns the bytes that a field has in base64, none without it.
func (o object) base64(name string) (b []byte, err error) {
	text, err := o.text(name)
	if err == nil {
		b, err = base64.StdEncoding.Strict().DecodeString(text)
		err = in(name, err)
	}
	return b, err
}

func (o object) routingKey() (string, error) {
	key, err := o.text("routing_key")
	if err != nil {
		return "", err
	}
	b, err := o.base64("routing_key_base64")
	if key != "" && len(b) > 0 {
		err = in("routing_key_base64", errors.New("must not be given with routing_key"))
	}
	return key + string(b), err
}

func (o object) properties() (p Properties, err error) {
	var view PropertiesView
	all := texts(&view)
	known := slices.Sorted(maps.Keys(all))
	var fields, encoded object
	if text, there := o["properties_base64"]; there {
		if encoded, err = objectOf(text, known...); err != nil {
			return p, in("properties_base64", err)
		}
	}
	if text, there := o["properties"]; there {
		if fields, err = objectOf(text, append(known, "delivery_mode", "priority", "timestamp")...); err != nil {
			return p, in("properties", err)
		}
	}
	for _, name := range known {
		to := all[name]
		if *to, err = fields.text(name); err != nil {
			return p, in("properties", err)
		}
		b, err := encoded.base64(name)
		if *to != "" && len(b) > 0 {
			err = in(name, errors.New("must not be given in properties, too"))
		}
		if err != nil {
			return p, in("properties_base64", err)
		}
		*to += string(b)
	}
	p = Properties{
		ContentType: view.ContentType, ContentEncoding: view.ContentEncoding, CorrelationID: view.CorrelationID,
		ReplyTo: view.ReplyTo, Expiration: view.Expiration, MessageID: view.MessageID, Type: view.Type,
		UserID: view.UserID, AppID: view.AppID,
	}
	for name, to := range map[string]*uint8{"delivery_mode": &p.DeliveryMode, "priority": &p.Priority} {
		if text, there := fields[name]; there && err == nil {
			err = in(name, decodeJSON(text, to, "a number from 0 to 255"))
		}
	}
	if text, there := fields["timestamp"]; there && err == nil {
		p.Timestamp, err = parseTime(text)
		err = in("timestamp", err)
	}
	return p, in("properties", err)
}

// table returns a table of two fields: one has the names, the other has names in base64.
func (o object) table(plain, encoded string, depth int) (map[string]any, error) {
	t := map[string]any{}
	for _, field := range []string{plain, encoded} {
		text, there := o[field]
		if !there {
			continue
		}
		entries, err := objectOf(text)
		if err != nil {
			return nil, in(field, err)
		}
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			key := name
			if field == encoded {
				b, err := base64.StdEncoding.Strict().DecodeString(name)
				if err != nil {
					return nil, in(field, in(name, fmt.Errorf("the name: %w", err)))
				}
				key = string(b)
			}
			if _, twice := t[key]; twice {
				return nil, in(field, in(name, errors.New("given twice")))
			}
			if t[key], err = parseValue(entries[name], depth); err != nil {
				return nil, in(field, in(name, err))
			}
		}
	}
	return t, nil
}

// parseValue parses a Value. It doesn't go deeper than Encode can.
func parseValue(text []byte, depth int) (any, error) {
	o, err := objectOf(text, "type", "value", "value_base64", "nan", "table_base64")
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, errDeep
	}
	kind, err := o.text("type")
	if err != nil {
		return nil, err
	}
	value, given := o["value"]
	if err := o.suits(kind); err != nil {
		return nil, err
	}
	switch kind {
	case "void":
		return nil, nil
	case "string", "bytes":
		return o.bytes(kind)
	case "table":
		return o.table("value", "table_base64", depth+1)
	}
	if !given {
		return nil, in("value", fmt.Errorf("is needed for the type %s", kind))
	}
	switch kind {
	case "array":
		return parseArray(value, depth)
	case "bool":
		return typed[bool](value, "true or false")
	case "timestamp":
		t, err := parseTime(value)
		return t, in("value", err)
	case "decimal":
		d, err := parseDecimal(value)
		return d, in("value", err)
	}
	return o.number(kind, value)
}

// suits refuses fields that values of a type don't have, and an unknown type.
func (o object) suits(kind string) error {
	takes := []string{"type", "value"}
	switch kind {
	case "void":
		takes = takes[:1]
	case "string":
		takes = append(takes, "value_base64")
	case "bytes":
		takes = []string{"type", "value_base64"}
	case "table":
		takes = append(takes, "table_base64")
	case "float32", "float64":
		takes = append(takes, "nan")
	case "array", "bool", "timestamp", "decimal", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32":
	default:
		return in("type", errors.New("want bool, int8, int16, int32, int64, uint8, uint16, uint32, float32, float64, "+
			"decimal, string, bytes, timestamp, array, table or void"))
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(takes, name) {
			return in(name, fmt.Errorf("the type %s has no such field", kind))
		}
	}
	return nil
}

// bytes returns a string, or the bytes of the type bytes.
func (o object) bytes(kind string) (any, error) {
	_, plain := o["value"]
	_, encoded := o["value_base64"]
	switch {
	case plain && encoded:
		return nil, in("value_base64", errors.New("must not be given with value"))
	case plain:
		return o.text("value")
	case !encoded && kind == "bytes":
		return nil, in("value_base64", errors.New("is needed for the type bytes"))
	case !encoded:
		return nil, in("value", errors.New("is needed for the type string"))
	}
	b, err := o.base64("value_base64")
	if kind == "bytes" {
		return b, err
	}
	return string(b), err
}

func parseArray(text []byte, depth int) (any, error) {
	var elements []json.RawMessage
	if err := decodeJSON(text, &elements, "an array"); err != nil {
		return nil, in("value", err)
	}
	a := make([]any, len(elements))
	for i, element := range elements {
		v, err := parseValue(element, depth+1)
		if err != nil {
			return nil, in("value", in(strconv.Itoa(i), err))
		}
		a[i] = v
	}
	return a, nil
}

// typed decodes a value of a type of Go.
func typed[T any](text []byte, want string) (any, error) {
	var v T
	err := decodeJSON(text, &v, want)
	return v, in("value", err)
}

func (o object) number(kind string, value []byte) (any, error) {
	switch kind {
	case "int8":
		return typed[int8](value, "a whole number of 8 bits")
	case "uint8":
		return typed[uint8](value, "a whole number of 8 bits, 0 or more")
	case "int16":
		return typed[int16](value, "a whole number of 16 bits")
	case "uint16":
		return typed[uint16](value, "a whole number of 16 bits, 0 or more")
	case "int32":
		return typed[int32](value, "a whole number of 32 bits")
	case "uint32":
		return typed[uint32](value, "a whole number of 32 bits, 0 or more")
	case "int64":
		return typed[int64](value, "a whole number of 64 bits")
	case "float32":
		bits, err := o.float(value, 32)
		return math.Float32frombits(uint32(bits)), err //nolint:gosec // of 32 bits
	}
	bits, err := o.float(value, 64)
	return math.Float64frombits(bits), err
}

// float returns the bits of a number, which may be the text NaN, +Inf or -Inf.
func (o object) float(value []byte, size int) (bits uint64, err error) {
	text, special := string(value), ""
	if strings.HasPrefix(text, `"`) {
		if err = decodeJSON(value, &special, ""); err != nil || !slices.Contains([]string{"NaN", "+Inf", "-Inf"}, special) {
			return 0, in("value", errors.New("want a number, NaN, +Inf or -Inf"))
		}
		text = special
	}
	f, err := strconv.ParseFloat(text, size)
	if err != nil {
		return 0, in("value", fmt.Errorf("want a number of %d bits", size))
	}
	bits = math.Float64bits(f)
	if size == 32 {
		bits = uint64(math.Float32bits(float32(f)))
	}
	nan, given := o["nan"]
	if !given {
		return bits, nil
	}
	var digits string
	if err = decodeJSON(nan, &digits, "a string"); err != nil {
		return 0, in("nan", err)
	}
	bits, err = strconv.ParseUint(digits, 16, size)
	if !math.IsNaN(f) || err != nil || len(digits) != size/4 || !isNaN(bits, size) {
		return 0, in("nan", fmt.Errorf("want the bits of a NaN with the value NaN: %d hexadecimal digits", size/4))
	}
	return bits, nil
}

func isNaN(bits uint64, size int) bool {
	if size == 32 {
		return math.IsNaN(float64(math.Float32frombits(uint32(bits)))) //nolint:gosec // of 32 bits
	}
	return math.IsNaN(math.Float64frombits(bits))
}

// parseTime parses what viewTime returns.
func parseTime(value []byte) (time.Time, error) {
	var text string
	if err := decodeJSON(value, &text, "a string"); err != nil {
		return time.Time{}, err
	}
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Unix(seconds, 0).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Nanosecond() != 0 {
		return time.Time{}, errors.New("want RFC 3339 in whole seconds, or text with seconds since 1970")
	}
	return t.UTC(), nil
}

// parseDecimal parses what viewDecimal returns.
func parseDecimal(value []byte) (d Decimal, err error) {
	var text string
	err = decodeJSON(value, &text, "a string")
	digits, places, scaled := strings.Cut(text, "e-")
	n, wrong := strconv.ParseInt(digits, 10, 32)
	scale := uint64(0)
	if scaled && wrong == nil {
		scale, wrong = strconv.ParseUint(places, 10, 8)
	}
	if err != nil || wrong != nil {
		return d, errors.New("want text such as 314e-2: an integer of 32 bits, and after e- a scale of 0 to 255")
	}
	return Decimal{Scale: uint8(scale), Value: int32(n)}, nil //nolint:gosec // checked
}
