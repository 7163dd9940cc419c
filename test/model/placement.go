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

// placement as in internal/shard.
type placement struct {
	epoch, shards, previous uint8
	phase                   phase
}

func (p placement) String() string {
	return fmt.Sprintf("%d %d %d %s", p.epoch, p.shards, p.previous, [...]string{"stable", "migrating", "removed"}[p.phase])
}

// scanned is how many shards are attended.
func (p placement) scanned() uint8 {
	if p.phase == stable {
		return p.shards
	}
	return max(p.shards, p.previous)
}

// start is the path of a topic with m shards.
func start(m uint8) path { return path{{0, m, m, stable}} }

type path []placement

// String names the shard counts in turn: "1 2 removed 1".
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

// begin adds a change to m shards that does not end.
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

// remove adds the topic's removal.
func (p path) remove() path {
	last := p.last()
	return append(p, placement{last.epoch + 1, last.shards, last.previous, removed})
}

// gather adds a change that brings home what lies in shards up to the mth, which a
// stable placement does not attend.
func (p path) gather(m uint8) path {
	last := p.last()
	return append(p,
		placement{last.epoch + 1, last.shards, m, migrating},
		placement{last.epoch + 2, last.shards, last.shards, stable})
}

// fork adds what happens when the placement key falls back by one change, and
// another change to m shards begins from there.
func (p path) fork(m uint8) path {
	lost := p.last()
	return append(p,
		placement{lost.epoch, m, lost.previous, migrating},
		placement{lost.epoch + 1, m, m, stable})
}

// changes is the path from each of the shard counts to the next.
func changes(counts ...uint8) path {
	p := start(counts[0])
	for _, m := range counts[1:] {
		p = p.change(m)
	}
	return p
}

// inForce is the newest placement that those who attend shards find: the key's, or, if
// that fell back, one that a fence has seen; and once that is put back, those that the
// fences of its shards have seen.
func (w *world) inForce(s *state) uint8 {
	p := s.placement
	for at := uint8(0); at < w.path[p].scanned(); at++ {
		if seen := s.shards[at].fence; w.epoch(seen) > w.epoch(p) {
			p = seen // none of the shards before has seen a newer one
		}
	}
	return p
}

// marks are the shards that count as clean: those found so under the placement in
// force.
func (w *world) marks(s *state) uint8 {
	if s.cleanOf != s.placement && w.rules&untied == 0 {
		return 0
	}
	return s.clean
}

func (w *world) mark(n *state, at uint8) {
	n.clean = w.marks(n) | bit(at)
	n.cleanOf = n.placement
}

func (w *world) newHome(p, id uint8) uint8 { return w.homes[id][w.path[p].shards-1] }
func (w *world) oldHome(p, id uint8) uint8 { return w.homes[id][w.path[p].previous-1] }

// moving reports whether a task is moving.
func (w *world) moving(p, id uint8) bool {
	return w.path[p].phase == migrating && w.oldHome(p, id) != w.newHome(p, id)
}

// epoch of a placement; under oneEpoch a change ends with the one it began with.
func (w *world) epoch(p uint8) uint8 {
	if w.rules&oneEpoch != 0 {
		return (w.path[p].epoch + 1) / 2
	}
	return w.path[p].epoch
}
