// Package amqpframe keeps a connection to RabbitMQ open on which amqp091-go receives a
// message that it can't read. The library ends the connection, and RabbitMQ delivers the
// message again, without end. A Conn replaces the headers of such a message by a mark, which
// Unreadable finds. It also keeps messages out that a Gate doesn't admit.
package amqpframe

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxHeader is the largest frame of properties that is read, in bytes. A larger one ends
	// the connection.
	maxHeader = 16 << 20
	// bufferSize holds many small messages, so that one read gets them all. A connection begins with
	// firstBuffer, because many have little to receive.
	bufferSize  = 64 << 10
	firstBuffer = 4 << 10
)

// Conn is the connection below amqp091-go, above TLS. All bytes from the server pass
// unchanged, except the properties of messages that the library can't read, and messages that
// the gate doesn't admit.
type Conn struct {
	net.Conn
	frameMax atomic.Int64
	silence  atomic.Int64 // how long the server may send nothing, in ns; 0: for ever
	gate     *Gate
	admits   map[uint16]Admit // by channel, between a message's first frame and its second
	refused  map[uint16]int   // by channel, bytes of a body that are still to come

	end   func() // closes ended
	ended chan struct{}

	buffer int // the size of store while frames fit

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
	ended := make(chan struct{})
	return &Conn{Conn: conn, gate: gate, admits: map[uint16]Admit{}, refused: map[uint16]int{},
		buffer: firstBuffer, end: sync.OnceFunc(func() { close(ended) }), ended: ended}
}

// Close closes the connection below. A Read that waits for the gate returns.
func (c *Conn) Close() error {
	c.end()
	return c.Conn.Close()
}

// SetReadDeadline sets when the connection is lost if the server sends nothing. The time in which
// the gate lets nothing be read doesn't count.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.silence.Store(int64(max(0, time.Until(t))))
	return c.Conn.SetReadDeadline(t)
}

// SetFrameMax sets the frame_max that the library negotiated, in bytes. The caller sets it
// before it consumes. 0 and below: no limit.
func (c *Conn) SetFrameMax(bytes int) { c.frameMax.Store(int64(bytes)) }

// Read is for one goroutine. It waits while nothing can pass, and while the gate says so. It returns
// errors of the connection below, and one of its own for properties above 16 MiB.
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
	case len(c.held) == 0 && len(c.store) != c.buffer:
		c.store = make([]byte, c.buffer)
	case len(c.held) == len(c.store): // a frame that is larger
		c.store = make([]byte, 2*len(c.store))
	}
	had := copy(c.store, c.held)
	n, err := c.Conn.Read(c.store[had:])
	if had+n == len(c.store) {
		c.buffer = min(2*c.buffer, bufferSize)
	}
	if c.held = c.store[:had+n]; n > 0 {
		c.err = err
		return nil
	}
	return err
}

// check looks at the frames in held that aren't clear, and stops at one that it has only a
// part of. It stops before one to replace, to drop or to wait for, too, and does that once it is the
// first. Those before it may have to be handled first.
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
		if c.clear > 0 && !c.known(channel, frame[:whole]) {
			return nil
		}
		other, err := c.other(channel, frame[:whole])
		if err != nil {
			return err
		}
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

// known asks about a message that isn't the first in held, and keeps the answer for other. It returns
// false if the message doesn't come as it is.
func (c *Conn) known(channel uint16, frame []byte) bool {
	admit := c.admits[channel]
	if admit == nil || len(frame) < firstAt+frameTail {
		return true
	}
	admitted, later := admit(bodyOf(frame), len(frame))
	switch {
	case later != nil:
		return false
	case admitted:
		c.admits[channel] = always
	default:
		c.admits[channel] = never
	}
	return admitted
}

func always(int, int) (admitted bool, later <-chan struct{}) { return true, nil }

func never(int, int) (admitted bool, later <-chan struct{}) { return false, nil }

// other returns what passes in place of a header frame; nil for the frame itself. The error says that
// the connection was closed while the message had to wait.
func (c *Conn) other(channel uint16, frame []byte) ([]byte, error) {
	if admit := c.admits[channel]; admit != nil && len(frame) >= firstAt+frameTail {
		delete(c.admits, channel)
		body := bodyOf(frame)
		admitted, err := c.admitted(admit, body, len(frame))
		if err != nil {
			return nil, err
		}
		if !admitted {
			c.refused[channel] = body
			return without(frame), nil
		}
	}
	return readable(frame, int(c.frameMax.Load())), nil
}

// admitted asks about a message until it doesn't have to wait.
func (c *Conn) admitted(admit Admit, body, properties int) (bool, error) {
	for waited := false; ; waited = true {
		admitted, later := admit(body, properties)
		if later == nil {
			if silence := time.Duration(c.silence.Load()); waited && silence > 0 {
				return admitted, c.SetReadDeadline(time.Now().Add(silence))
			}
			return admitted, nil
		}
		select {
		case <-later:
		case <-c.ended:
			return false, net.ErrClosed
		}
	}
}
