package model

// slot is one task's place in a shard, its score and record in one.
type slot struct {
	state   uint8
	version uint8
	token   uint8 // of its lease
	lapsed  uint8 // the lease ran out
	parked  uint8 // parked, or exported and parked before
}

const (
	none uint8 = iota
	waiting
	leased
)

// shard is what one shard's keys hold.
type shard struct {
	fence   uint8 // the newest placement it has seen
	handled uint8
	slots   [maxTasks]slot
	cursor  uint8 // of the pass
	dirty   uint8
	order   uint8 // in which the server scans: a restarted one has another
}

type answer uint8

const (
	ok answer = iota
	moved
	there
	gone
)

// check is the first thing most scripts do.
func (w *world) check(sh *shard, p uint8) bool {
	seen, asked := w.epoch(sh.fence), w.epoch(p)
	switch {
	case sh.fence == p:
		return true
	case asked == seen:
		return w.rules&(equalAccepted|oneEpoch) != 0
	case asked < seen:
		return w.rules&noFence != 0
	}
	sh.fence, sh.handled, sh.cursor, sh.dirty = p, 0, 0, 0
	return true
}

// seen reports whether a shard has seen just this placement.
func (w *world) seen(sh *shard, p uint8) bool {
	return sh.fence == p || w.epoch(sh.fence) == w.epoch(p) && w.rules&(equalAccepted|oneEpoch) != 0
}

// verb is a script as producers call it.
type verb uint8

const (
	noCall verb = iota
	fence       // and read
	put
	putAbsent
	remove     // delete
	removeNote // delete, and note the ID among the handled IDs
	read
	reschedule
)

func (v verb) String() string {
	return [...]string{"", "fence", "put", "put-if-absent", "delete", "delete", "read", "reschedule"}[v]
}

// writes reports whether the script carries a not-after time.
func (v verb) writes() bool { return v >= put && v != read }

// call is one script on its way to a shard.
type call struct {
	verb                verb
	caller              uint8 // the producer, from 1; 0: it has gone
	op                  uint8
	shard, view, record uint8 // record: the fallback's version
}

// perform carries a producer's script out.
func (w *world) perform(s *state, c call) answer {
	sh, op := &s.shards[c.shard], w.ops[c.op]
	l := &sh.slots[op.id]
	switch c.verb {
	case read:
		return w.read(sh, l, c.view)
	case put, putAbsent, reschedule:
		if l.state != none && l.version == op.version && w.rules&noOp == 0 {
			return ok
		}
	}
	if !w.check(sh, c.view) {
		return moved
	}
	switch c.verb {
	case fence:
		if l.state == none {
			return gone
		}
		return there
	case remove, removeNote:
		*l = slot{}
		if c.verb == removeNote {
			sh.handled |= bit(op.id)
		}
		return ok
	case putAbsent:
		if l.state != none {
			return there
		}
	case reschedule:
		if l.state == none && (c.record == 0 || sh.handled&bit(op.id) != 0) {
			return gone
		}
	}
	*l = slot{state: waiting, version: op.version}
	if w.moving(c.view, op.id) {
		sh.handled |= bit(op.id)
	}
	return ok
}

func (w *world) read(sh *shard, l *slot, p uint8) answer {
	older := w.epoch(p) < w.epoch(sh.fence)
	other := w.epoch(p) == w.epoch(sh.fence) && sh.fence != p
	switch {
	case older && w.rules&uncheckedRead == 0, other && w.rules&(readByEpoch|uncheckedRead|oneEpoch) == 0:
		return moved
	case l.state == none:
		return gone
	}
	return there
}

// import takes a task over that is exported elsewhere. The caller has compared
// the deadline.
func (w *world) importBatch(sh *shard, p, id uint8, l slot) answer {
	if !w.check(sh, p) {
		return moved
	}
	here := sh.slots[id].state != none
	if noted := sh.handled&bit(id) != 0; noted && w.rules&noHandled == 0 || here {
		sh.handled |= bit(id)
		return there
	}
	sh.slots[id] = slot{state: waiting, version: l.version, parked: l.parked}
	sh.handled |= bit(id)
	return ok
}
