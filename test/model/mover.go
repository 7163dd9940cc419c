package model

// mover moves misplaced tasks of one shard to their new shards.
type mover struct {
	at      moverStep
	view    uint8
	shard   uint8
	id      uint8
	version uint8 // exported
	parked  uint8
	run     uint8
	lapsed  uint8 // its export expired
	cursor  uint8 // the position of the pass, as it knows it
	stale   uint8 // the pass that it knows has ended
	dirty   uint8
	other   uint8 // the exported task isn't the one it asked for
}

type moverStep uint8

const (
	moverIdle moverStep = iota
	moverExported
	moverImported // or skipped
	moverRefused  // MOVED or LATE: it gives the task back
	moverPassed   // looked at one task of the pass
	moverClean    // found nothing misplaced
)

func (m mover) holds() bool { return m.at >= moverExported && m.at <= moverRefused }

func (m mover) point() points {
	if m.at == moverImported {
		return imported
	}
	return exported
}

// move visits every next step of the movers.
func (w *system) move(s *state) {
	for i := range uint8(w.movers) {
		switch m := s.movers[i]; m.at {
		case moverIdle:
			w.poll(s, i)
		case moverPassed:
			w.advancePass(s, i)
		case moverClean:
			n := *s
			if s.placement == m.view {
				w.mark(&n, m.shard)
			}
			n.movers[i] = mover{}
			w.emit(s, &n, did("mover", i, "marks the shard clean").on(m.shard).under(m.view))
		default:
			w.carry(s, i)
		}
	}
}

// leave clears a mover. Its exports stay leased.
func (n *state) leave(i uint8) {
	n.abandon(i + 1)
	n.movers[i] = mover{}
}

// poll starts a mover on any shard, under any placement that was in force.
func (w *system) poll(s *state, i uint8) {
	for view := uint8(0); view <= s.newest; view++ {
		if w.path[view].phase != migrating {
			continue
		}
		for at := range w.path[view].scanned() {
			switch sh := &s.shards[at]; {
			case w.epoch(sh.fence) < w.epoch(view):
				n := *s
				w.check(&n.shards[at], view)
				w.emit(s, &n, did("mover", i, "fence").on(at).under(view).acked(at))
			case !w.seen(sh, view):
			case w.rules&passes != 0:
				w.lookOn(s, i, view, at)
			default:
				w.look(s, i, view, at)
			}
		}
	}
}

// misplaced reports whether a task in a shard belongs elsewhere.
func (w *system) misplaced(sh *shard, view, at, id uint8) bool {
	l := sh.slots[id]
	return l.state != none && w.newHome(view, id) != at &&
		(w.rules&ignoreLeased == 0 || l.state != leased)
}

// exportable reports whether movers export a task: it is parked, or its lease has
// expired, or it waits and isn't due soon.
func (w *system) exportable(s *state, l slot) bool {
	if l.state == leased {
		return l.lapsed != 0 && w.rules&keepLapsed == 0
	}
	return s.due&bit(l.version) == 0 || l.parked != 0 || w.rules&exportDue != 0
}

// look is a script of the protocol that finds the misplaced tasks of a shard. The mover
// exports any one of them.
func (w *system) look(s *state, i, view, at uint8) {
	clean := true
	for id := range w.tasks {
		if w.misplaced(&s.shards[at], view, at, id) {
			clean = false
			w.export(s, i, view, at, id)
		}
	}
	if clean && view == s.placement && w.marks(s)&bit(at) == 0 {
		n := *s
		n.movers[i] = mover{at: moverClean, view: view, shard: at}
		w.emit(s, &n, did("mover", i, "look: clean").on(at).under(view).acked(at))
	}
}

func (w *system) export(s *state, i, view, at, id uint8) bool {
	l := s.shards[at].slots[id]
	if !w.exportable(s, l) {
		return false
	}
	n := *s
	n.shards[at].slots[id] = slot{leased, l.version, i + 1, 0, l.parked, l.run}
	n.movers[i] = mover{at: moverExported, view: view, shard: at, id: id, version: l.version, parked: l.parked, run: l.run,
		cursor: s.shards[at].cursor}
	st := did("mover", i, "export").of(id, l.version).on(at).under(view)
	w.emit(s, &n, st)
	if w.lost&lostExport != 0 {
		n := *s
		n.shards[at].slots[id] = slot{leased, l.version, nobody, 0, l.parked, l.run}
		w.emit(s, &n, st.answer("done, but the reply is lost").maybe())
	}
	return true
}

// carry visits the next steps of a mover that holds an export: it moves the task to its
// new shard, or gives it back.
func (w *system) carry(s *state, i uint8) {
	m := s.movers[i]
	if m.lapsed == 0 && w.stall&m.point() != 0 {
		n := *s
		n.movers[i].lapsed = 1
		n.lapse(i + 1)
		w.emit(s, &n, did("mover", i, "sleeps past its lease").maybe())
	}
	if w.crash&m.point() != 0 {
		n := *s
		n.leave(i)
		w.emit(s, &n, did("mover", i, "dies").maybe())
	}
	switch m.at {
	case moverExported:
		w.handOver(s, i)
	case moverImported:
		n := *s
		l := &n.shards[m.shard].slots[m.id]
		settled := l.token == i+1
		if settled {
			*l = slot{}
		}
		n.leave(i)
		if w.rules&passes != 0 {
			m.at, m.dirty = moverPassed, 1
			if settled && (m.other == 0 || w.rules&byCount != 0) {
				m.dirty = 0
			}
			n.movers[i] = mover{at: m.at, view: m.view, shard: m.shard, cursor: m.cursor, stale: m.stale, dirty: m.dirty}
		}
		w.emit(s, &n, did("mover", i, "settle").of(m.id, m.version).on(m.shard))
	case moverRefused:
		n := *s
		if l := &n.shards[m.shard].slots[m.id]; l.token == i+1 {
			*l = slot{state: waiting, version: l.version, parked: l.parked, run: l.run}
		}
		n.leave(i)
		w.emit(s, &n, did("mover", i, "release").of(m.id, m.version).on(m.shard))
	}
}

// handOver imports a task into its new shard, unless the export's deadline has passed.
func (w *system) handOver(s *state, i uint8) {
	m := s.movers[i]
	to := w.newHome(m.view, m.id)
	st := did("mover", i, "import").of(m.id, m.version).on(to).under(m.view)
	past := m.lapsed != 0 && w.rules&noDeadline == 0
	if past || w.late {
		w.importLate(s, i, to, st)
	}
	if past {
		return
	}
	n := *s
	a := w.importBatch(&n.shards[to], m.view, m.id, slot{version: m.version, parked: m.parked, run: m.run})
	if a == moved {
		w.refused(s, i, st.answer("MOVED"))
		return
	}
	if n != *s && w.lost&lostImport != 0 {
		w.emit(s, &n, st.answer("done, but the reply is lost").maybe())
	}
	n.movers[i].at = moverImported
	if a == there {
		st = st.answer("skipped")
	}
	w.emit(s, &n, st.acked(to))
}

// importLate is an import after the deadline.
func (w *system) importLate(s *state, i, to uint8, st step) {
	m := s.movers[i]
	sh := &s.shards[to]
	if w.rules&importForgets == 0 && w.seen(sh, m.view) && sh.handled&bit(m.id) != 0 {
		n := *s
		n.movers[i].at = moverImported
		w.emit(s, &n, st.answer("late, but among the handled IDs"))
		return
	}
	w.refused(s, i, st.answer("LATE"))
}

func (w *system) refused(s *state, i uint8, st step) {
	n := *s
	if w.rules&noGiveBack != 0 {
		n.leave(i)
	} else {
		n.movers[i].at = moverRefused
	}
	w.emit(s, &n, st)
}
