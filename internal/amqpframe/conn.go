// Package amqpframe keeps a connection to RabbitMQ open on which amqp091-go receives a
// message that it can't read. The library ends the connection, and RabbitMQ delivers the
// message again, without end. A Conn replaces the headers of such a message by a mark, which
// Unreadable finds. It also keeps messages out that a Gate doesn't admit.
package amqpframe

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
)

const (
	// maxHeader is the largest frame of properties that is read, in bytes. A larger one ends
	// the connection.
	maxHeader = 16 << 20
	// bufferSize holds many small messages, so that one read gets them all.
	bufferSize = 64 << 10
)

// Conn is the connection below amqp091-go, above TLS. All bytes from the server pass
// unchanged, except the properties of messages that the library can't read, and messages that
// the gate doesn't admit.
type Conn struct {
	net.Conn
	frameMax atomic.Int64
	gate     *Gate
	admits   map[uint16]func(int, int) bool // by channel, between a message's first frame and its second
	refused  map[uint16]int                 // by channel, bytes of a body that are still to come

	store []byte // the memory of held
	held  []byte // arrived and not passed on
	clear int64  // bytes that may pass: from held, and behind it the rest of a frame

	instead []byte // passes before held
	drop    int64  // bytes that don't pass: from held, and behind it the rest of a frame
	err     error  // came with the last bytes in held
}

// New returns a connection that hides from its reader what amqp091-go can't read, and what the
// gate doesn't admit; nil admits all.
func New(conn net.Conn, gate *Gate) *Conn {
	return &Conn{Conn: conn, gate: gate, admits: map[uint16]func(int, int) bool{}, refused: map[uint16]int{}}
}

// SetFrameMax sets the frame_max that the library negotiated, in bytes. The caller sets it
// before it consumes. 0 and below: no limit.
func (c *Conn) SetFrameMax(bytes int) { c.frameMax.Store(int64(bytes)) }

// Read is for one goroutine. It waits only while nothing can pass. It returns errors of the
// connection below, and one of its own for properties above 16 MiB.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if len(c.instead) > 0 {
			n := copy(p, c.instead)
			c.instead = c.instead[n:]
			return n, nil
		}
		if c.drop > 0 {
			n := min(c.drop, int64(len(c.held)))
			if c.held, c.drop = c.held[n:], c.drop-n; c.drop == 0 {
				continue
			}
			if err := c.fill(); err != nil {
				return 0, err
			}
			continue
		}
		if ready := min(c.clear, int64(len(c.held))); ready > 0 {
			n := copy(p, c.held[:ready])
			c.held, c.clear = c.held[n:], c.clear-int64(n)
			return n, nil
		}
		if len(c.held) == 0 && c.err == nil && c.clear >= int64(len(p)) { // within a large frame
			n, err := c.Conn.Read(p)
			c.clear -= int64(n)
			return n, err
		}
		if err := c.check(); err != nil {
			return 0, err
		}
		if c.clear > 0 && len(c.held) > 0 || len(c.instead) > 0 || c.drop > 0 {
			continue
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
}

// fill waits for more bytes. It returns an error only if none came.
func (c *Conn) fill() error {
	if err := c.err; err != nil {
		c.err = nil
		return err
	}
	switch {
	case len(c.held) == 0 && len(c.store) != bufferSize:
		c.store = make([]byte, bufferSize)
	case len(c.held) == len(c.store): // a frame that is larger
		c.store = make([]byte, 2*len(c.store))
	}
	had := copy(c.store, c.held)
	n, err := c.Conn.Read(c.store[had:])
	if c.held = c.store[:had+n]; n > 0 {
		c.err = err
		return nil
	}
	return err
}

// check looks at the frames in held that aren't clear, and stops at one that it has only a
// part of. It stops before one to replace or to drop, too, and does that once it is the first.
func (c *Conn) check() error {
	for c.clear < int64(len(c.held)) {
		frame := c.held[c.clear:]
		if len(frame) < frameHead {
			return nil
		}
		whole := frameHead + int64(binary.BigEndian.Uint32(frame[frameSize:])) + frameTail
		channel := binary.BigEndian.Uint16(frame[frameChannel:])
		switch kind := frame[0]; {
		case kind == typeMethod && c.gate != nil:
			if int64(len(frame)) < min(whole, tagEnd) {
				return nil
			}
			if admit := c.gate.of(frame[:min(whole, tagEnd)]); admit != nil {
				c.admits[channel] = admit
			}
			c.clear += whole
			continue
		case kind == typeBody && c.refused[channel] > 0:
			if c.clear > 0 {
				return nil
			}
			c.drop = whole
			c.refused[channel] -= int(whole) - frameHead - frameTail
			return nil
		case kind != typeHeader:
			c.clear += whole
			continue
		}
		if whole > maxHeader {
			if c.clear > 0 {
				return nil
			}
			return fmt.Errorf("RabbitMQ sends a message with properties of %d bytes; at most %d can be read", whole, maxHeader)
		}
		if int64(len(frame)) < whole {
			return nil
		}
		other := c.other(channel, frame[:whole])
		if other == nil {
			c.clear += whole
			continue
		}
		if c.clear == 0 {
			c.held, c.instead = c.held[whole:], other
		}
		return nil
	}
	return nil
}

// other returns what passes in place of a header frame; nil for the frame itself. If that isn't
// the first in held, other is called for it again.
func (c *Conn) other(channel uint16, frame []byte) []byte {
	if admit := c.admits[channel]; admit != nil && len(frame) >= firstAt+frameTail {
		body := bodyOf(frame)
		if !admit(body, len(frame)) {
			c.admits[channel] = func(int, int) bool { return false }
			if c.clear == 0 {
				c.refused[channel] = body
				delete(c.admits, channel)
			}
			return without(frame)
		}
		delete(c.admits, channel)
	}
	return readable(frame, int(c.frameMax.Load()))
}
