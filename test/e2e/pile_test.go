package e2e_test

import (
	"iter"

	"github.com/duefleet/duefleet/test/fleet"
)

// pile keeps messages in the order in which they arrived, and never moves them. A slice
// that grows copies what it holds: with 300,000 messages that held up the consumer, which
// takes the time of those behind, for a third of a second.
type pile struct{ chunks [][]fleet.Delivery }

// pileChunk is how many messages lie together.
const pileChunk = 1024

func (p *pile) add(d fleet.Delivery) {
	last := len(p.chunks) - 1
	if last < 0 || len(p.chunks[last]) == pileChunk {
		p.chunks = append(p.chunks, make([]fleet.Delivery, 0, pileChunk))
		last++
	}
	p.chunks[last] = append(p.chunks[last], d)
}

// first is the one that arrived before all others; there must be one.
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
