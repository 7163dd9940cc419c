package amqpframe

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/task"
)

// A frame of AMQP 0-9-1, section 4.2.3: type, channel, size of the payload, payload, 0xCE.
// The payload of a header frame, section 4.2.6.1: class, weight, size of the body, flags,
// properties.
//
// The payload of basic.deliver, sections 1.8 and 4.2.4: class and method, consumer tag. A tag
// has up to 255 bytes, behind one for its length.
const (
	frameChannel = 1 // where the channel is
	frameSize    = 3
	frameHead    = 7
	frameTail    = 1
	frameEnd     = 0xCE

	typeMethod = 1
	typeHeader = 2
	typeBody   = 3

	bodyAt  = frameHead + 2 + 2
	flagsAt = bodyAt + 8
	firstAt = flagsAt + 2

	basicDeliver = 60<<16 | 60
	tagAt        = frameHead + 4 + 1
	tagEnd       = tagAt + 255
)

// The flags of properties that aren't short texts. flagFirst belongs to the first
// property, and flagLast to the last one that amqp091-go reads.
const (
	flagFirst        = 1 << 15
	flagHeaders      = 1 << 13
	flagDeliveryMode = 1 << 12
	flagPriority     = 1 << 11
	flagTimestamp    = 1 << 6
	flagLast         = 1 << 2
)

// The headers that a message has in place of its own.
const (
	// HeaderUnreadable says why the message can't be read.
	HeaderUnreadable = task.ReservedHeaderPrefix + "unreadable"
	// HeaderTable holds the headers that can't be read, in AMQP's encoding. It is left out if
	// they don't fit into a frame.
	HeaderTable = task.ReservedHeaderPrefix + "unreadable-headers"
)

// Error says why a message can't be read.
type Error struct{ why string }

func (e *Error) Error() string { return e.why }

// Unreadable returns an *Error if a Conn has replaced the headers of a message; else nil.
func Unreadable(headers map[string]any) error {
	if why, there := headers[HeaderUnreadable]; there {
		return &Error{fmt.Sprint(why)}
	}
	return nil
}

// readable returns nil for a header frame that amqp091-go can read. Otherwise it returns a
// frame to pass in its place. It also returns nil for bytes that are no header frame.
func readable(frame []byte, frameMax int) []byte {
	if len(frame) < firstAt+frameTail || frame[len(frame)-1] != frameEnd {
		return nil
	}
	p := propertiesOf(frame)
	if frameMax > 0 && len(frame) > frameMax {
		p.err = fmt.Errorf("the properties are a frame of %d bytes; at most %d are possible", len(frame), frameMax)
	}
	if p.err == nil {
		return nil
	}
	if frameMax <= 0 {
		frameMax = maxHeader
	}
	why := fmt.Sprintf("headers of %d bytes can't be read: %v", len(p.table), p.err)
	other := p.marked(frame, why, p.table)
	if len(other) > frameMax {
		other = p.marked(frame, why, nil)
	}
	return other
}

// properties are those that could be read of a header frame.
type properties struct {
	flags  uint16
	before []byte // those in front of the headers, encoded
	table  []byte // the headers, encoded
	after  []byte
	err    error // of the headers, or of the first property that couldn't be read
}

var errShort = errors.New("a property is cut short")

func propertiesOf(frame []byte) (p properties) {
	flags := binary.BigEndian.Uint16(frame[flagsAt:])
	rest := frame[firstAt : len(frame)-frameTail]
	read := &p.before
	*read = rest[:0]
	for flag := uint16(flagFirst); flag >= flagLast; flag >>= 1 {
		if flag == flagHeaders { // the next ones are behind them
			read = &p.after
			if flags&flag != 0 {
				length := lengthOf(rest, flag)
				if length > len(rest) {
					p.err = errShort
					return p
				}
				p.table = rest[tableHead:length]
				p.err = amqpmsg.CheckTable(p.table)
				rest = rest[length:]
			}
			*read = rest[:0]
			continue
		}
		if flags&flag == 0 {
			continue
		}
		length := lengthOf(rest, flag)
		if length > len(rest) {
			if p.err == nil {
				p.err = errShort
			}
			return p
		}
		p.flags |= flag
		*read, rest = (*read)[:len(*read)+length], rest[length:]
	}
	return p
}

// tableHead is the length of a table's length.
const tableHead = 4

// lengthOf returns the length of the property that rest begins with. It is more than rest if
// the property is cut short.
func lengthOf(rest []byte, flag uint16) int {
	switch {
	case flag == flagDeliveryMode || flag == flagPriority:
		return 1
	case flag == flagTimestamp:
		return 8
	case flag == flagHeaders && len(rest) >= tableHead:
		return tableHead + int(min(binary.BigEndian.Uint32(rest), maxHeader))
	case flag != flagHeaders && len(rest) > 0:
		return 1 + int(rest[0])
	}
	return len(rest) + 1
}

// marked returns the frame with the mark in place of its headers. An empty table is left out.
func (p *properties) marked(frame []byte, why string, table []byte) []byte {
	b := make([]byte, 0, len(frame)+512)
	b = append(b, frame[:flagsAt]...)
	b = binary.BigEndian.AppendUint16(b, p.flags|flagHeaders)
	b = append(b, p.before...)
	length := len(b)
	b = append(b, 0, 0, 0, 0)
	b = appendHeader(b, HeaderUnreadable, 'S', []byte(why))
	if len(table) > 0 {
		b = appendHeader(b, HeaderTable, 'x', table)
	}
	putSize(b[length:], len(b)-length-tableHead)
	b = append(b, p.after...)
	b = append(b, frameEnd)
	putSize(b[frameSize:], len(b)-frameHead-frameTail)
	return b
}

func appendHeader(b []byte, key string, tag byte, value []byte) []byte {
	b = append(b, byte(len(key)))
	b = append(b, key...)
	b = append(b, tag, 0, 0, 0, 0)
	putSize(b[len(b)-4:], len(value))
	return append(b, value...)
}

//nolint:gosec // far below 2^32
func putSize(b []byte, size int) { binary.BigEndian.PutUint32(b, uint32(size)) }
