package amqpmsg

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/duefleet/duefleet/task"
)

// Encode returns the body of a record. Equal messages have equal bodies. The error holds a
// *task.RuleError. It names the value that has a Go type without an AMQP type, or is too
// long.
func Encode(m Message) ([]byte, error) {
	b, broken := encode(m)
	if broken != nil {
		return nil, fmt.Errorf("encode message: %w", broken)
	}
	return b, nil
}

func encode(m Message) ([]byte, *task.RuleError) {
	e := encoder{b: make([]byte, 0, 128+len(m.RoutingKey)+len(m.Body))}
	e.byte(Version)
	e.short("routing_key", m.RoutingKey)
	length := e.begin()
	flags := len(e.b)
	e.b = append(e.b, 0, 0)
	present := e.properties(m.Properties, m.Headers)
	binary.BigEndian.PutUint16(e.b[flags:], present)
	if n := len(e.b) - flags; n > MaxProperties {
		rule := fmt.Sprintf("must take at most %d bytes together with the properties, to fit into one frame", MaxProperties)
		e.fail("headers", rule, size(n))
	}
	e.end(length)
	if e.err != nil {
		return nil, e.err
	}
	return append(e.b, m.Body...), nil
}

// encoder appends to b, and keeps the first error.
type encoder struct {
	b   []byte
	err *task.RuleError
}

// properties appends those that are present and returns their flags.
func (e *encoder) properties(p Properties, headers map[string]any) uint16 {
	var flags uint16
	text := func(flag uint16, name, value string) {
		if value != "" {
			flags |= flag
			e.short(name, value)
		}
	}
	octet := func(flag uint16, value uint8) {
		if value != 0 {
			flags |= flag
			e.byte(value)
		}
	}
	text(flagContentType, "content_type", p.ContentType)
	text(flagContentEncoding, "content_encoding", p.ContentEncoding)
	if len(headers) > 0 && e.err == nil {
		flags |= flagHeaders
		e.table(headers, 0)
		e.within("headers")
	}
	octet(flagDeliveryMode, p.DeliveryMode)
	octet(flagPriority, p.Priority)
	text(flagCorrelationID, "correlation_id", p.CorrelationID)
	text(flagReplyTo, "reply_to", p.ReplyTo)
	text(flagExpiration, "expiration", p.Expiration)
	text(flagMessageID, "message_id", p.MessageID)
	if !p.Timestamp.IsZero() {
		flags |= flagTimestamp
		e.int64(p.Timestamp.Unix())
	}
	text(flagType, "type", p.Type)
	text(flagUserID, "user_id", p.UserID)
	text(flagAppID, "app_id", p.AppID)
	return flags
}

// fail keeps the error of a field. The field is empty for a value of a table or array: see
// within.
func (e *encoder) fail(field, rule, got string) {
	if e.err == nil {
		e.err = &task.RuleError{Field: field, Rule: rule, Got: got}
	}
}

// within adds the name of the table that the value of an error is in, or its name there.
func (e *encoder) within(name string) {
	if e.err != nil {
		e.err.Field = join(name, e.err.Field)
	}
}

// join returns the path of an inner field.
func join(outer, inner string) string {
	if inner == "" {
		return outer
	}
	return outer + "." + inner
}

func size(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

func (e *encoder) byte(v byte) { e.b = append(e.b, v) }

func (e *encoder) uint16(v uint16) { e.b = binary.BigEndian.AppendUint16(e.b, v) }

func (e *encoder) uint32(v uint32) { e.b = binary.BigEndian.AppendUint32(e.b, v) }

func (e *encoder) int64(v int64) {
	e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) //nolint:gosec // the same bits
}

// begin leaves room for a length of 4 bytes; end fills it in.
func (e *encoder) begin() int {
	e.b = append(e.b, 0, 0, 0, 0)
	return len(e.b)
}

func (e *encoder) end(begin int) {
	binary.BigEndian.PutUint32(e.b[begin-4:], uint32(len(e.b)-begin)) //nolint:gosec // far below 2^32
}

const shortRule = "must have at most 255 bytes"

// short appends a text with its length in one byte.
func (e *encoder) short(name, v string) {
	if len(v) > math.MaxUint8 {
		e.fail(name, shortRule, size(len(v)))
		return
	}
	e.byte(byte(len(v)))
	e.b = append(e.b, v...)
}

// long appends bytes with their length in four.
func (e *encoder) long(tag byte, v string) {
	if len(v) > MaxProperties {
		e.fail("", fmt.Sprintf("must have at most %d bytes", MaxProperties), size(len(v)))
		return
	}
	e.byte(tag)
	e.uint32(uint32(len(v))) //nolint:gosec // checked
	e.b = append(e.b, v...)
}

func (e *encoder) table(t map[string]any, depth int) {
	if !e.container(len(t), depth) {
		return
	}
	begin := e.begin()
	for _, key := range slices.Sorted(maps.Keys(t)) {
		if len(key) > math.MaxUint8 {
			e.fail("", "the name of an entry "+shortRule, size(len(key)))
			return
		}
		e.short(key, key)
		if e.value(t[key], depth); e.err != nil {
			e.within(key)
			return
		}
	}
	e.end(begin)
}

func (e *encoder) array(a []any, depth int) {
	if !e.container(len(a), depth) {
		return
	}
	begin := e.begin()
	for i, v := range a {
		if e.value(v, depth); e.err != nil {
			e.within(strconv.Itoa(i))
			return
		}
	}
	e.end(begin)
}

// container reports whether a table or array keeps the limits.
func (e *encoder) container(elements, depth int) bool {
	if depth > maxDepth {
		e.fail("", fmt.Sprintf("headers must not nest deeper than %d", maxDepth), "more")
	}
	if elements > maxElements {
		e.fail("", fmt.Sprintf("must have at most %d elements", maxElements), strconv.Itoa(elements))
	}
	return e.err == nil
}

// The errors of reading.
var (
	errDeep = fmt.Errorf("headers nest deeper than %d", maxDepth)
	errMany = fmt.Errorf("a table or array of headers has more than %d elements", maxElements)
)

// value appends a tag and a value.
func (e *encoder) value(value any, depth int) {
	switch v := value.(type) {
	case string:
		e.long('S', v)
	case []byte:
		e.long('x', string(v))
	case nil:
		e.byte('V')
	case time.Time:
		e.byte('T')
		e.int64(v.Unix())
	case Decimal:
		e.b = append(e.b, 'D', v.Scale)
		e.uint32(uint32(v.Value)) //nolint:gosec // the same bits
	case map[string]any:
		e.byte('F')
		e.table(v, depth+1)
	case []any:
		e.byte('A')
		e.array(v, depth+1)
	default:
		e.number(value)
	}
}

//nolint:gosec // signed numbers are written as the same bits
func (e *encoder) number(value any) {
	switch v := value.(type) {
	case bool:
		e.b = append(e.b, 't', 0)
		if v {
			e.b[len(e.b)-1] = 1
		}
	case int8:
		e.b = append(e.b, 'b', byte(v))
	case uint8:
		e.b = append(e.b, 'B', v)
	case int16:
		e.byte('s')
		e.uint16(uint16(v))
	case uint16:
		e.byte('u')
		e.uint16(v)
	case int32:
		e.byte('I')
		e.uint32(uint32(v))
	case uint32:
		e.byte('i')
		e.uint32(v)
	case int64:
		e.byte('l')
		e.int64(v)
	case float32:
		e.byte('f')
		e.uint32(math.Float32bits(v))
	case float64:
		e.byte('d')
		e.int64(int64(math.Float64bits(v)))
	default:
		e.fail("", "must be of one of the types that task.AMQP lists", fmt.Sprintf("the Go type %T", value))
	}
}
