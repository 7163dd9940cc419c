package model

// slot is one task's place in a shard: its score and its record.
type slot struct {
	state   uint8
	version uint8
	token   uint8 // the token of its lease
	lapsed  uint8 // its lease has expired
	parked  uint8 // parked, or exported after it was parked
	run     uint8 // which run of a recurring task, from 0
}

const (
	none uint8 = iota
	waiting
	leased
)

// shard holds the contents of one shard's keys.
type shard struct {
	fence   uint8 // the newest placement it has seen
	handled uint8
	slots   [maxTasks]slot
	cursor  uint8 // of the pass
	dirty   uint8
	order   uint8 // of the server's scan: changes with a restart
}

type answer uint8

const (
	ok answer = iota
	moved
	there
	gone
)

// check compares a caller's placement with the shard's fence, as most scripts do first. A
// newer placement becomes the fence. It returns false if the script must answer MOVED.
func (w *system) check(sh *shard, p uint8) bool {
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

// seen reports whether a shard has seen exactly this placement.
func (w *system) seen(sh *shard, p uint8) bool {
	return sh.fence == p || w.epoch(sh.fence) == w.epoch(p) && w.rules&(equalAccepted|oneEpoch) != 0
}

// verb is a script that producers call.
type verb uint8

const (
	noCall verb = iota
	fence       // and read
	put
	putAbsent
	remove     // delete
	removeNote // delete, and add the ID to the handled IDs
	read
	reschedule
)

func (v verb) String() string {
	return [...]string{"", "fence", "put", "put-if-absent", "delete", "delete", "read", "reschedule"}[v]
}

// writes reports whether the script has a deadline.
func (v verb) writes() bool { return v >= put && v != read }

// call is one script on its way to a shard.
type call struct {
	verb                verb
	caller              uint8 // the producer, counted from 1; 0: it no longer waits
	op                  uint8
	shard, view, record uint8 // record: the fallback's version
}

// perform executes a producer's script.
func (w *system) perform(s *state, c call) answer {
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

func (w *system) read(sh *shard, l *slot, p uint8) answer {
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

// importBatch adds a task that is exported from another shard. The caller has checked the
// deadline.
func (w *system) importBatch(sh *shard, p, id uint8, l slot) answer {
	if !w.check(sh, p) {
		return moved
	}
	here := sh.slots[id].state != none
	if noted := sh.handled&bit(id) != 0; noted && w.rules&noHandled == 0 || here {
		sh.handled |= bit(id)
		return there
	}
	sh.slots[id] = slot{state: waiting, version: l.version, parked: l.parked, run: l.run}
	sh.handled |= bit(id)
	return ok
}
