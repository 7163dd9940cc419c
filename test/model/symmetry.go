package model

import (
	"cmp"
)

// Symmetry reduction: all movers are alike, and so are all scanners. If states differ
// only in the order of movers or scanners, the search explores only one of them.

// canonical sorts the movers and scanners of a state.
func (w *system) canonical(s *state) {
	if w.movers == 2 {
		if c := compareMovers(s.movers[0], s.movers[1]); c > 0 || c == 0 && s.firstToken(1, 2) == 2 {
			s.movers[0], s.movers[1] = s.movers[1], s.movers[0]
			s.swapTokens(1, 2)
		}
	}
	if w.scanners == 2 && compareScanners(s.scanners[0], s.scanners[1]) > 0 {
		s.scanners[0], s.scanners[1] = s.scanners[1], s.scanners[0]
		s.swapTokens(maxMovers+1, maxMovers+2)
	}
}

func (s *state) swapTokens(a, b uint8) {
	s.each(func(sh *shard) {
		for i := range sh.slots {
			switch l := &sh.slots[i]; l.token {
			case a:
				l.token = b
			case b:
				l.token = a
			}
		}
	})
}

// firstToken returns which of two tokens comes first in the shards.
func (s *state) firstToken(a, b uint8) uint8 {
	for i := range s.shards {
		for _, l := range s.shards[i].slots {
			if l.token == a || l.token == b {
				return l.token
			}
		}
	}
	return a
}

func compareMovers(a, b mover) int {
	return cmp.Compare(moverKey(a), moverKey(b))
}

func moverKey(m mover) uint64 {
	return pack(uint8(m.at), m.view, m.shard, m.id<<4|m.version, m.run<<6|m.parked<<4|m.lapsed, m.cursor,
		m.stale<<4|m.dirty, m.other)
}

func compareScanners(a, b scanner) int {
	return cmp.Compare(scannerKey(a), scannerKey(b))
}

func scannerKey(a scanner) uint64 {
	return pack(uint8(a.at), a.view, a.shard, a.id, a.version, a.lapsed, a.run)
}

func pack(bytes ...uint8) (key uint64) {
	for _, b := range bytes {
		key = key<<8 | uint64(b)
	}
	return key
}
