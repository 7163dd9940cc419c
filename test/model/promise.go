package model

import "strings"

// promises are promises to applications, and the protocol's own invariants behind them.
type promises = set

const (
	kept             promises = 1 << iota // P1
	cancelled                             // P2
	replaced                              // P3
	single                                // P3b
	once                                  // P4
	getAnswer                             // P6
	polled                                // P7
	inPlace                               // PH
	absentAnswer                          // PA
	rescheduleAnswer                      // PR
	noEffect                              // PX
	staysParked                           // PP
	gapless                               // PG
	ends                                  // P8
)

// safety holds the promises that survive every crash and stall.
const safety = kept | cancelled | replaced | single | getAnswer | polled | inPlace | absentAnswer | rescheduleAnswer |
	gapless

func describe(broken promises) string {
	texts := [...]string{
		"P1: a scheduled task is neither delivered nor in a shard that workers poll",
		"P2: a version is pending, or claimed, after its cancel returned",
		"P3: a version is pending, or claimed, after its replacement's schedule returned",
		"P3b: two versions of one task are pending while no operation is under way",
		"P4: a version is delivered twice",
		"P6: get says not found for a task that was there throughout",
		"P7: a task lies in a shard that no worker polls",
		"PH: the placement is stable, and a task lies in a wrong shard",
		"PA: if-absent succeeds though the task was there throughout",
		"PR: reschedule says not found for a task that was there throughout",
		"PX: an operation was answered without an effect, and its version is pending or delivered",
		"PP: a parked task is claimed",
		"PG: a run of a recurring task is delivered, and one before it was not",
		"P8: from here the change cannot end",
	}
	var out []string
	for i, text := range texts {
		if broken&(1<<i) != 0 {
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// broken returns the promises that a state breaks, whatever steps led to it.
func (w *system) broken(s *state) promises {
	var b promises
	for id := range w.tasks {
		b |= w.brokenCopies(s, id)
		if w.promises&kept != 0 && w.lostTask(s, id) {
			b |= kept
		}
	}
	if w.promises&noEffect != 0 && w.effectAfterAll(s) {
		b |= noEffect
	}
	if s.firedAgain != 0 {
		b |= once
	}
	return b & w.promises
}

// brokenCopies checks where the copies of one task are.
func (w *system) brokenCopies(s *state, id uint8) (b promises) {
	first, placement := uint8(0), w.inForce(s)
	for at := range w.shards {
		l := s.shards[at].slots[id]
		if l.state == none {
			continue
		}
		b |= w.overruled(s, w.writer[l.version])
		if first == 0 {
			first = l.version
		} else if first != l.version && w.allReturned(s) {
			b |= single
		}
		if at >= w.path[placement].scanned() {
			b |= polled
		}
		if w.path[placement].phase == stable && w.newHome(placement, id) != at {
			b |= inPlace
		}
	}
	return b
}

// allReturned returns false while an operation is running, or if its caller died in it.
func (w *system) allReturned(s *state) bool {
	for i := range w.ops {
		if st := s.operations[i].status; st == running || st == crashed {
			return false
		}
	}
	return true
}

// overruled returns the promise that is broken if the version of an operation is still
// pending, or 0. It is broken if another operation on the task began after this one
// returned, and has returned too.
func (w *system) overruled(s *state, op uint8) promises {
	for j, later := range w.ops {
		o := s.operations[j]
		if uint8(j) == op || !later.writes() || later.id != w.ops[op].id || o.status != returned {
			continue
		}
		after := o.after
		if w.strict {
			after |= o.afterCrashed
		}
		if after&bit(op) == 0 {
			continue
		}
		if later.kind == 'C' {
			return cancelled
		}
		return replaced
	}
	return 0
}

// lostTask reports whether an operation returned although its effect is gone and nothing
// superseded it.
func (w *system) lostTask(s *state, id uint8) bool {
	promised := false
	for i, op := range w.ops {
		st := s.operations[i].status
		delivered := s.fired&bit(op.version) != 0 && s.parked&bit(op.version) == 0
		unasked := op.id != id || !op.writes() || st == notBegun
		if unasked || st == inEffect && !delivered || w.overruled(s, uint8(i)) != 0 {
			continue
		}
		if op.kind == 'C' || delivered || w.pending(s, id, op.version) {
			return false
		}
		promised = promised || st == returned
	}
	return promised
}

// pending reports whether a version is in a scanned shard.
func (w *system) pending(s *state, id, version uint8) bool {
	for at := range w.path[w.inForce(s)].scanned() {
		if l := s.shards[at].slots[id]; l.state != none && l.version == version {
			return true
		}
	}
	return false
}

func (w *system) effectAfterAll(s *state) bool {
	for i, op := range w.ops {
		if s.operations[i].status != inEffect || op.kind != 'A' && op.kind != 'R' {
			continue
		}
		if s.fired&bit(op.version) != 0 {
			return true
		}
		for at := range s.shards {
			if l := s.shards[at].slots[op.id]; l.state != none && l.version == op.version {
				return true
			}
		}
	}
	return false
}

func (w *system) present(s *state, id uint8) bool {
	for at := range w.shards {
		if s.shards[at].slots[id].state != none {
			return true
		}
	}
	return false
}

// authoritative reports whether an undelivered copy of a task is stored that counts. A
// copy in the old shard doesn't count if the handled set of the new shard has the ID.
func (w *system) authoritative(s *state, id uint8) bool {
	placement := w.inForce(s)
	for at := range w.shards {
		l := s.shards[at].slots[id]
		if l.state == none || s.fired&bit(l.version) != 0 {
			continue
		}
		if w.moving(placement, id) && w.oldHome(placement, id) == at {
			n := &s.shards[w.newHome(placement, id)]
			if w.seen(n, placement) && n.handled&bit(id) != 0 {
				continue
			}
		}
		return true
	}
	return false
}
