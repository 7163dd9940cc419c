package e2e_test

import (
	"iter"

	"github.com/duefleet/duefleet/test/fleet"
)

// messageLog keeps messages in their order of arrival, and never copies them. A growing
// slice copies its elements. With 300,000 messages that delayed the consumer, and so its
// time stamps, by a third of a second.
type messageLog struct{ chunks [][]fleet.Delivery }

// messageLogChunk is the number of messages in one chunk.
const messageLogChunk = 1024

func (p *messageLog) add(d fleet.Delivery) {
	last := len(p.chunks) - 1
	if last < 0 || len(p.chunks[last]) == messageLogChunk {
		p.chunks = append(p.chunks, make([]fleet.Delivery, 0, messageLogChunk))
		last++
	}
	p.chunks[last] = append(p.chunks[last], d)
}

// first returns the message that arrived first; there must be one.
func (p *messageLog) first() fleet.Delivery { return p.chunks[0][0] }

func (p *messageLog) all() iter.Seq[fleet.Delivery] {
	return func(yield func(fleet.Delivery) bool) {
		for _, chunk := range p.chunks {
			for _, d := range chunk {
				if !yield(d) {
					return
				}
			}
		}
	}
}
