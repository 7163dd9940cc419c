package amqpframe

import (
	"encoding/binary"
	"math"
	"sync"
)

// Gate decides which messages for consumers reach amqp091-go. RabbitMQ limits the number of
// unacked messages, not their bytes, and the library reads whatever comes. A message that
// isn't admitted comes without body and properties, and takes no memory. RabbitMQ delivers it
// again once its channel is closed. While one has to wait, nothing is read from its connection.
type Gate struct {
	mu     sync.RWMutex
	admits map[string]Admit // by consumer tag
}

// Admit decides about the next message of a consumer. It gets the bytes of the body and of the
// properties as they are sent. If the message has to wait, later is closed when Admit is to be
// called for it again. Otherwise later is nil, and admitted says whether it comes whole.
type Admit func(body, properties int) (admitted bool, later <-chan struct{})

// NewGate returns a Gate that admits all messages.
func NewGate() *Gate { return &Gate{admits: map[string]Admit{}} }

// Watch lets admit decide about the messages for a consumer tag, until the caller calls
// forget. The tag is a new one on all connections of the Gate. The reader of the connection calls
// admit, for the messages in their order.
func (g *Gate) Watch(consumer string, admit Admit) (forget func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admits[consumer] = admit
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.admits, consumer)
	}
}

// of returns what decides about a message, whose method frame begins with these bytes; nil if
// nothing does.
func (g *Gate) of(method []byte) Admit {
	if len(method) < tagAt || binary.BigEndian.Uint32(method[frameHead:]) != basicDeliver {
		return nil
	}
	tag := method[tagAt:]
	if length := int(method[tagAt-1]); length < len(tag) {
		tag = tag[:length]
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.admits[string(tag)]
}

// without returns the header frame of a message that has nothing.
func without(frame []byte) []byte {
	b := make([]byte, firstAt+frameTail)
	copy(b, frame[:bodyAt]) // its channel and class
	putSize(b[frameSize:], firstAt-frameHead)
	b[firstAt] = frameEnd
	return b
}

// bodyOf returns the size that a header frame gives.
func bodyOf(frame []byte) int {
	return int(min(binary.BigEndian.Uint64(frame[bodyAt:]), math.MaxInt64)) //nolint:gosec // that is its maximum
}
