package model

// lookOn is one step of a mover's pass over a shard. It looks at the task at the cursor,
// and exports it if it is misplaced. The order of the tasks depends on the server.
func (w *system) lookOn(s *state, i, view, at uint8) {
	if view == s.placement && w.marks(s)&bit(at) != 0 {
		return
	}
	sh := &s.shards[at]
	id := sh.cursor
	if sh.order != 0 {
		id = w.tasks - 1 - id
	}
	dirty := w.misplaced(sh, view, at, id)
	if dirty {
		w.exportAnother(s, i, view, at, id)
		if w.export(s, i, view, at, id) {
			return
		}
	}
	n := *s
	n.movers[i] = mover{at: moverPassed, view: view, shard: at, cursor: sh.cursor}
	st := did("mover", i, "looks at the next task: nothing misplaced")
	if dirty {
		n.movers[i].dirty = 1
		st = did("mover", i, "looks at the next task: misplaced, stays")
	}
	w.emit(s, &n, st.of(id, sh.slots[id].version).on(at).under(view))
}

// exportAnother answers a mover's request with an earlier export that nobody holds any
// more. An earlier worker of the same name had given its request the same number.
func (w *system) exportAnother(s *state, i, view, at, asked uint8) {
	for id := range w.tasks {
		l := s.shards[at].slots[id]
		if w.rules&renumbered == 0 || id == asked || l.state != leased || l.token != nobody || l.lapsed != 0 {
			continue
		}
		n := *s
		n.shards[at].slots[id].token = i + 1
		n.movers[i] = mover{at: moverExported, view: view, shard: at, id: id, version: l.version, parked: l.parked,
			cursor: s.shards[at].cursor, other: 1}
		w.emit(s, &n, did("mover", i, "export").of(id, l.version).on(at).under(view).answer("remembered"))
	}
}

// advancePass records the result of one look by compare-and-set on the pass's position.
// If the pass ends and met nothing misplaced, the mover marks the shard clean.
func (w *system) advancePass(s *state, i uint8) {
	n := *s
	m := n.movers[i]
	n.movers[i] = mover{}
	sh := &n.shards[m.shard]
	st := did("mover", i, "scan_pass").on(m.shard).under(m.view).acked(m.shard)
	switch {
	case !w.check(sh, m.view):
		st = st.answer("MOVED")
	case w.rules&noCompare == 0 && (m.stale != 0 || m.cursor != sh.cursor):
		st = st.answer("the pass is at another position")
	default:
		sh.cursor = m.cursor + 1
		if w.rules&noDirty == 0 {
			sh.dirty |= m.dirty
		}
		st = st.answer("the pass goes on")
		if sh.cursor == w.tasks {
			st = w.endPass(&n, i, m, st)
		}
	}
	w.emit(s, &n, st)
}

func (w *system) endPass(n *state, i uint8, m mover, st step) step {
	sh := &n.shards[m.shard]
	clean := sh.dirty == 0
	n.restart(m.shard)
	if !clean {
		return st.answer("the pass ends")
	}
	n.movers[i] = mover{at: moverClean, view: m.view, shard: m.shard}
	return st.answer("the pass ends: clean")
}

// restart starts a shard's next pass.
func (s *state) restart(at uint8) {
	s.shards[at].cursor, s.shards[at].dirty = 0, 0
	for i := range s.movers {
		if m := &s.movers[i]; m.shard == at && m.at != moverIdle && m.at != moverClean {
			m.stale = 1
		}
	}
}
