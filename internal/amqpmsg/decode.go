package amqpmsg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// Decode unpacks what Encode returned. The Body is a part of b. Times are in UTC. Bytes
// that Encode can't have written are an error.
func Decode(b []byte) (Message, error) {
	m, err := decode(b)
	if err != nil {
		return Message{}, fmt.Errorf("decode message of %d bytes: %w", len(b), err)
	}
	return m, nil
}

func decode(b []byte) (Message, error) {
	d := decoder{b: b}
	if version := d.byte(); d.err == nil && version != Version {
		return Message{}, fmt.Errorf("it begins with %d, not with %d", version, Version)
	}
	m := Message{RoutingKey: d.short()}
	length := d.uint32()
	if length > MaxProperties {
		return Message{}, fmt.Errorf("properties of %d bytes; at most %d", length, MaxProperties)
	}
	in := decoder{b: d.nextBytes(int(length)), err: d.err}
	in.properties(&m)
	if in.err == nil && len(in.b) > 0 {
		in.err = fmt.Errorf("%d bytes behind the properties", len(in.b))
	}
	m.Body = d.b
	return m, in.err
}

var (
	errShort  = errors.New("it is cut short")
	errTwice  = errors.New("a header is there twice")
	errFlags  = errors.New("a property is unknown")
	errLength = errors.New("a length goes beyond the value that contains it")
)

// decoder takes from the front of b, and keeps the first error. After it every value is
// zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) properties(m *Message) {
	flags, p := d.uint16(), &m.Properties
	if flags&(lastFlag-1) != 0 {
		d.fail(errFlags)
	}
	text := func(flag uint16, to *string) {
		if flags&flag != 0 {
			*to = d.short()
		}
	}
	octet := func(flag uint16, to *uint8) {
		if flags&flag != 0 {
			*to = d.byte()
		}
	}
	text(flagContentType, &p.ContentType)
	text(flagContentEncoding, &p.ContentEncoding)
	if flags&flagHeaders != 0 {
		m.Headers = d.table(0)
	}
	octet(flagDeliveryMode, &p.DeliveryMode)
	octet(flagPriority, &p.Priority)
	text(flagCorrelationID, &p.CorrelationID)
	text(flagReplyTo, &p.ReplyTo)
	text(flagExpiration, &p.Expiration)
	text(flagMessageID, &p.MessageID)
	if flags&flagTimestamp != 0 {
		p.Timestamp = d.time()
	}
	text(flagType, &p.Type)
	text(flagUserID, &p.UserID)
	text(flagAppID, &p.AppID)
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

// nextBytes returns the next n bytes, nil if there are fewer.
func (d *decoder) nextBytes(n int) []byte {
	if d.err != nil || n > len(d.b) {
		d.fail(errShort)
		return nil
	}
	taken := d.b[:n:n]
	d.b = d.b[n:]
	return taken
}

// uint is a big-endian number of at most 8 bytes.
func (d *decoder) uint(bytes int) uint64 {
	var wide [8]byte
	copy(wide[8-bytes:], d.nextBytes(bytes))
	return binary.BigEndian.Uint64(wide[:])
}

//nolint:gosec // of one byte
func (d *decoder) byte() byte { return byte(d.uint(1)) }

//nolint:gosec // of two bytes
func (d *decoder) uint16() uint16 { return uint16(d.uint(2)) }

//nolint:gosec // of four bytes
func (d *decoder) uint32() uint32 { return uint32(d.uint(4)) }

//nolint:gosec // the same bits
func (d *decoder) int64() int64 { return int64(d.uint(8)) }

func (d *decoder) short() string { return string(d.nextBytes(int(d.byte()))) }

func (d *decoder) time() time.Time {
	seconds := d.int64()
	if d.err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// long returns the bytes behind a length of 4 bytes.
func (d *decoder) long() []byte {
	length := d.uint32()
	if int64(length) > int64(len(d.b)) {
		d.fail(errLength)
		return nil
	}
	return d.nextBytes(int(length))
}

func (d *decoder) table(depth int) map[string]any {
	in := d.inside(depth)
	t := map[string]any{}
	for len(in.b) > 0 && in.err == nil {
		key := in.short()
		if _, there := t[key]; there {
			in.fail(errTwice)
		}
		if len(t) == maxElements {
			in.fail(errMany)
		}
		t[key] = in.value(depth)
	}
	d.outside(in)
	return t
}

func (d *decoder) array(depth int) []any {
	in := d.inside(depth)
	a := []any{}
	for len(in.b) > 0 && in.err == nil {
		if len(a) == maxElements {
			in.fail(errMany)
		}
		a = append(a, in.value(depth))
	}
	d.outside(in)
	return a
}

// inside returns a decoder of the next table or array alone; outside takes over its error.
func (d *decoder) inside(depth int) *decoder {
	in := &decoder{b: d.long(), err: d.err}
	if depth > maxDepth {
		in.fail(errDeep)
	}
	return in
}

func (d *decoder) outside(in *decoder) {
	if in.err != nil {
		d.fail(in.err)
	}
}

// value returns what stands behind a tag.
//
//nolint:gosec // signed numbers were written as the same bits
func (d *decoder) value(depth int) any {
	switch tag := d.byte(); tag {
	case 'S':
		return string(d.long())
	case 'x':
		return append([]byte{}, d.long()...)
	case 'V':
		return nil
	case 'T':
		return d.time()
	case 'D':
		return Decimal{Scale: d.byte(), Value: int32(d.uint32())}
	case 'F':
		return d.table(depth + 1)
	case 'A':
		return d.array(depth + 1)
	default:
		return d.number(tag)
	}
}

//nolint:gosec // signed numbers were written as the same bits
func (d *decoder) number(tag byte) any {
	switch tag {
	case 't':
		return d.byte() != 0
	case 'b':
		return int8(d.byte())
	case 'B':
		return d.byte()
	case 's':
		return int16(d.uint16())
	case 'u':
		return d.uint16()
	case 'I':
		return int32(d.uint32())
	case 'i':
		return d.uint32()
	case 'l':
		return d.int64()
	case 'f':
		return math.Float32frombits(d.uint32())
	case 'd':
		return math.Float64frombits(d.uint(8))
	default:
		d.fail(unknownType(tag))
		return nil
	}
}

func unknownType(tag byte) error { return fmt.Errorf("a header has the unknown type %q", tag) }
