package model

// producer is one application at a step of its program.
type producer struct {
	next   uint8 // the next operation of the program
	at     producerStep
	view   uint8 // the placement it knows.
	steady uint8 // the task has been stored all the time since the operation began.
	record uint8 // version seen at the old shard.
	absent uint8 // answers "not found" after it deletes the copy at the old shard.
}

type producerStep uint8

const (
	producerIdle producerStep = iota
	atOld
	atNew
	atClosing // the delete at the old shard, the last step of most operations
)

func (a producerStep) point() points { return beforeOld << (a - atOld) }

// firstStep of an operation under a placement.
func (w *system) firstStep(op planned, view uint8) producerStep {
	if !w.moving(view, op.id) ||
		op.kind == 'S' && w.rules&noTouch != 0 ||
		op.kind == 'C' && w.rules&newFirst != 0 {
		return atNew
	}
	return atOld
}

// script returns a producer's next script.
func (w *system) script(i uint8, p producer) call {
	at := w.programs[i][p.next]
	op := w.ops[at]
	c := call{caller: i + 1, op: at, view: p.view, record: p.record, shard: w.oldHome(p.view, op.id)}
	if p.at == atNew {
		c.shard = w.newHome(p.view, op.id)
	}
	switch {
	case op.kind == 'G':
		c.verb = read
	case op.kind == 'C' && p.at == atNew && w.moving(p.view, op.id):
		c.verb = removeNote
	case op.kind == 'C', p.at == atClosing:
		c.verb = remove
	case p.at == atOld:
		c.verb = fence
	case op.kind == 'A':
		c.verb = putAbsent
	case op.kind == 'R':
		c.verb = reschedule
	default:
		c.verb = put
	}
	return c
}

// produce visits every next step of the producers.
func (w *system) produce(s *state) {
	for i := range w.programs {
		p := &s.producers[i]
		switch {
		case int(p.next) == len(w.programs[i]):
		case p.at == producerIdle:
			w.beginOperation(s, uint8(i))
		default:
			w.goOn(s, uint8(i))
		}
	}
}

func (w *system) beginOperation(s *state, i uint8) {
	at := w.programs[i][s.producers[i].next]
	op := w.ops[at]
	for view := uint8(0); view <= s.newest; view++ {
		if w.path[view].phase == removed {
			continue
		}
		n := *s
		n.operations[at].status = running
		for j, other := range s.operations {
			switch other.status {
			case returned:
				n.operations[at].after |= bit(uint8(j))
			case crashed:
				n.operations[at].afterCrashed |= bit(uint8(j))
			}
		}
		p := &n.producers[i]
		p.view, p.at = view, w.firstStep(op, view)
		if op.kind == 'G' || op.kind == 'A' || op.kind == 'R' {
			p.steady = 1
		}
		st := did("producer", i, op.begins()).of(op.id, op.version).under(view).maybe()
		w.emit(s, &n, st)
		if op.kind == 'S' && p.at == atOld && w.knows(&s.shards[w.oldHome(view, op.id)], view) {
			p.at = atNew
			w.emit(s, &n, st)
		}
	}
}

// knows reports whether Schedule may omit the fence script, because this process
// remembers that the shard has seen the placement's epoch.
func (w *system) knows(sh *shard, view uint8) bool {
	if w.rules&knownFence == 0 || w.epoch(sh.fence) < w.epoch(view) {
		return false
	}
	return w.rules&knownByEpoch != 0 || sh.fence == view || w.epoch(sh.fence) > w.epoch(view)
}

// goOn visits the outcomes of a producer's next script, and the producer's crash before
// it.
func (w *system) goOn(s *state, i uint8) {
	p := s.producers[i]
	c := w.script(i, p)
	op := w.ops[c.op]
	if op.writes() && w.crash&p.at.point() != 0 {
		n := *s
		n.finish(i, c.op, crashed)
		if n.copy.caller == i+1 {
			n.copy.caller = 0
		}
		w.emit(s, &n, did("producer", i, "dies, or gives up").maybe())
	}
	if s.copy.caller == i+1 && w.rules&noOutlast == 0 {
		return
	}
	n := *s
	a := w.perform(&n, c)
	st := did("producer", i, c.verb.String()).of(op.id, op.version).on(c.shard).under(c.view)
	if lost := w.lostKind(c.verb); w.lost&lost != 0 && a == ok && n != *s {
		w.emit(s, &n, st.answer("done, but the reply is lost").maybe())
	}
	if w.delayed && c.verb.writes() && s.copy.verb == noCall {
		d := *s
		d.copy = c
		w.emit(s, &d, st.answer("no reply: the script waits in a socket").maybe())
	}
	if a == moved && (p.at != atClosing || w.rules&startOver != 0) {
		w.renew(s, i, c.shard)
		return
	}
	broken := w.advance(&n, i, c, a)
	w.emit(s, &n, w.result(st, &n, c).acked(c.shard).breaks(broken))
}

func (w *system) lostKind(v verb) scripts {
	switch v {
	case put, putAbsent, reschedule:
		return lostPut
	case remove, removeNote:
		return lostDelete
	}
	return 0
}

// renew reads the placement again and restarts the operation. If the placement key fell
// back, it uses the newer placement that the shard has seen. A removed topic is an error.
func (w *system) renew(s *state, i, shard uint8) {
	n := *s
	p := &n.producers[i]
	at := w.programs[i][p.next]
	st := did("producer", i, "receives MOVED").under(p.view)
	now := s.placement
	if seen := s.shards[shard].fence; w.epoch(seen) > w.epoch(now) {
		now = seen
	}
	if w.path[now].phase == removed {
		n.finish(i, at, crashed)
		w.emit(s, &n, st.answer("the topic is unknown"))
		return
	}
	p.view, p.record, p.absent = now, 0, 0
	p.at = w.firstStep(w.ops[at], p.view)
	w.emit(s, &n, st.answer("starts over"))
}

// result adds the operation's result to a step of the trace.
func (w *system) result(st step, n *state, c call) step {
	switch n.operations[c.op].status {
	case returned:
		return st.answer("returned")
	case inEffect:
		return st.answer("returned without an effect")
	}
	return st
}

func (s *state) finish(i, op, status uint8) {
	s.operations[op].status = status
	s.producers[i] = producer{next: s.producers[i].next + 1}
}

// advance takes a script's reply and moves the producer on. It returns the promises that
// the caller's answer breaks.
func (w *system) advance(n *state, i uint8, c call, a answer) promises {
	p := &n.producers[i]
	op := w.ops[c.op]
	two := w.moving(c.view, op.id)
	switch {
	case op.kind == 'G':
		return w.advanceGet(n, i, c, a)
	case p.at == atOld && (op.kind == 'A' || op.kind == 'R') && a == there:
		return w.meetOld(n, i, c)
	case p.at == atOld:
		p.at = atNew
	case p.at == atClosing && p.absent != 0:
		n.finish(i, c.op, inEffect)
	case p.at == atClosing:
		n.finish(i, c.op, returned)
	case a == there: // if-absent
		n.finish(i, c.op, inEffect)
	case a == gone: // reschedule
		return w.advanceNotFound(n, i, c)
	case two && (op.kind != 'C' || w.rules&newFirst != 0):
		broken := w.answered(*p, op)
		p.at = atClosing
		return broken
	default:
		broken := w.answered(*p, op)
		n.finish(i, c.op, returned)
		return broken
	}
	return 0
}

func (w *system) answered(p producer, op planned) promises {
	if op.kind == 'A' && p.steady != 0 {
		return absentAnswer
	}
	return 0
}

func (w *system) advanceGet(n *state, i uint8, c call, a answer) promises {
	p := &n.producers[i]
	if a == gone && p.at == atOld {
		p.at = atNew
		return 0
	}
	broken := a == gone && p.steady != 0
	n.finish(i, c.op, inEffect)
	if broken {
		return getAnswer
	}
	return 0
}

// meetOld handles a record that if-absent or reschedule finds in the old shard. If the
// operation itself wrote it before the change began, a mover will move it.
func (w *system) meetOld(n *state, i uint8, c call) promises {
	p := &n.producers[i]
	op := w.ops[c.op]
	version := n.shards[c.shard].slots[op.id].version
	switch {
	case version == op.version && w.rules&noOp == 0:
		n.finish(i, c.op, returned)
	case op.kind == 'A':
		n.finish(i, c.op, inEffect)
	default:
		p.record, p.at = version, atNew
	}
	return 0
}

// advanceNotFound handles a reschedule that finds nothing at the new shard. If a copy is
// at the old shard, it is superseded and is deleted first.
func (w *system) advanceNotFound(n *state, i uint8, c call) promises {
	p := &n.producers[i]
	broken := p.steady != 0
	if w.moving(c.view, w.ops[c.op].id) && p.record != 0 {
		p.at, p.absent = atClosing, 1
	} else {
		n.finish(i, c.op, inEffect)
	}
	if broken {
		return rescheduleAnswer
	}
	return 0
}

func (o planned) begins() string {
	switch o.kind {
	case 'S':
		return "begins schedule"
	case 'C':
		return "begins cancel"
	case 'G':
		return "begins get"
	case 'A':
		return "begins schedule if absent"
	}
	return "begins reschedule"
}
