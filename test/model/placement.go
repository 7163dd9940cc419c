package model

import (
	"fmt"
	"strings"
)

type phase uint8

const (
	stable phase = iota
	migrating
	removed
)

// placement is as in internal/shard.
type placement struct {
	epoch, shards, previous uint8
	phase                   phase
}

func (p placement) String() string {
	return fmt.Sprintf("%d %d %d %s", p.epoch, p.shards, p.previous, [...]string{"stable", "migrating",
		"removed"}[p.phase])
}

// scanned returns the number of shards that scanners poll.
func (p placement) scanned() uint8 {
	if p.phase == stable {
		return p.shards
	}
	return max(p.shards, p.previous)
}

// start returns the path (the placements in the order they come into force) of a new
// topic with m shards.
func start(m uint8) path { return path{{0, m, m, stable}} }

type path []placement

// String lists the shard counts in order, as in "1 2 removed 1".
func (p path) String() string {
	var counts []string
	for i, one := range p {
		switch {
		case one.phase == removed:
			counts = append(counts, "removed")
		case one.phase == migrating || i == 0:
			counts = append(counts, fmt.Sprint(one.shards))
		}
	}
	return strings.Join(counts, " ")
}

func (p path) last() placement { return p[len(p)-1] }

// begin adds the begin of a change to m shards, without its end.
func (p path) begin(m uint8) path {
	last := p.last()
	next := placement{last.epoch + 1, m, last.shards, migrating}
	if last.phase == removed {
		next.previous = max(last.shards, last.previous)
	}
	return append(p, next)
}

// change adds a change to m shards.
func (p path) change(m uint8) path {
	p = p.begin(m)
	last := p.last()
	return append(p, placement{last.epoch + 1, m, m, stable})
}

// remove adds the removal of the topic.
func (p path) remove() path {
	last := p.last()
	return append(p, placement{last.epoch + 1, last.shards, last.previous, removed})
}

// gather adds a change to the same shard count that recovers orphaned tasks. They are in
// shards below m that a stable placement doesn't scan.
func (p path) gather(m uint8) path {
	last := p.last()
	return append(p,
		placement{last.epoch + 1, last.shards, m, migrating},
		placement{last.epoch + 2, last.shards, last.shards, stable})
}

// fork adds another change with the epoch of the last placement, as if the placement key
// had fallen back by one change before it began.
func (p path) fork(m uint8) path {
	lost := p.last()
	return append(p,
		placement{lost.epoch, m, lost.previous, migrating},
		placement{lost.epoch + 1, m, m, stable})
}

// changes returns the path from each shard count to the next.
func changes(counts ...uint8) path {
	p := start(counts[0])
	for _, m := range counts[1:] {
		p = p.change(m)
	}
	return p
}

// inForce returns the newest placement that scanners find. That is normally the key's
// placement. After the key fell back, it is the newest one that a fence of the scanned
// shards has seen.
func (w *system) inForce(s *state) uint8 {
	p := s.placement
	for at := uint8(0); at < w.path[p].scanned(); at++ {
		if seen := s.shards[at].fence; w.epoch(seen) > w.epoch(p) {
			p = seen // none of the shards before has seen a newer one
		}
	}
	return p
}

// marks returns the shards that count as clean, as bits: the ones found clean under the
// placement in force.
func (w *system) marks(s *state) uint8 {
	if s.cleanOf != s.placement && w.rules&untied == 0 {
		return 0
	}
	return s.clean
}

func (w *system) mark(n *state, at uint8) {
	n.clean = w.marks(n) | bit(at)
	n.cleanOf = n.placement
}

func (w *system) newHome(p, id uint8) uint8 { return w.homes[id][w.path[p].shards-1] }
func (w *system) oldHome(p, id uint8) uint8 { return w.homes[id][w.path[p].previous-1] }

// moving reports whether a task moves under a placement.
func (w *system) moving(p, id uint8) bool {
	return w.path[p].phase == migrating && w.oldHome(p, id) != w.newHome(p, id)
}

// epoch returns a placement's epoch. Under oneEpoch, a change ends with the epoch it
// began with.
func (w *system) epoch(p uint8) uint8 {
	if w.rules&oneEpoch != 0 {
		return (w.path[p].epoch + 1) / 2
	}
	return w.path[p].epoch
}
