package e2e_test

import (
	"iter"

	"github.com/duefleet/duefleet/test/fleet"
)

// backlog keeps messages in their order of arrival, and never moves them. A growing slice
// copies its elements: with 300,000 messages, that delayed the consumer and its time
// stamps by a third of a second.
type backlog struct{ chunks [][]fleet.Delivery }

// backlogChunk is the number of messages in one chunk.
const backlogChunk = 1024

func (p *backlog) add(d fleet.Delivery) {
	last := len(p.chunks) - 1
	if last < 0 || len(p.chunks[last]) == backlogChunk {
		p.chunks = append(p.chunks, make([]fleet.Delivery, 0, backlogChunk))
		last++
	}
	p.chunks[last] = append(p.chunks[last], d)
}

// first returns the message that arrived first; there must be one.
func (p *backlog) first() fleet.Delivery { return p.chunks[0][0] }

func (p *backlog) all() iter.Seq[fleet.Delivery] {
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
