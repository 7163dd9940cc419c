package e2e_test

import (
	"iter"

	"github.com/duefleet/duefleet/test/fleet"
)

// pile keeps messages in their order of arrival, and never moves them. A growing slice
// copies its elements: with 300,000 messages, that delayed the consumer and its time
// stamps by a third of a second.
type pile struct{ chunks [][]fleet.Delivery }

// pileChunk is the number of messages in one chunk.
const pileChunk = 1024

func (p *pile) add(d fleet.Delivery) {
	last := len(p.chunks) - 1
	if last < 0 || len(p.chunks[last]) == pileChunk {
		p.chunks = append(p.chunks, make([]fleet.Delivery, 0, pileChunk))
		last++
	}
	p.chunks[last] = append(p.chunks[last], d)
}

// first returns the message that arrived first; there must be one.
func (p *pile) first() fleet.Delivery { return p.chunks[0][0] }

func (p *pile) all() iter.Seq[fleet.Delivery] {
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
