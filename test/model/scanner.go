package model

// scanner claims one task at a time.
type scanner struct {
	at      scannerStep
	view    uint8 // only under settleChecked
	shard   uint8
	id      uint8
	version uint8
	run     uint8
	lapsed  uint8 // its lease expired
}

type scannerStep uint8

const (
	scannerIdle scannerStep = iota
	scannerClaimed
	scannerPublished
)

func (a scannerStep) point() points { return claimed << (a - scannerClaimed) }

// scan visits every next step of the scanners.
func (w *system) scan(s *state) {
	for i := range uint8(w.scanners) {
		if s.scanners[i].at == scannerIdle {
			w.claims(s, i)
		} else {
			w.forward(s, i)
		}
	}
}

// claims tries every shard that any placement so far includes, because a worker with an
// older placement may still poll it. That must be harmless.
func (w *system) claims(s *state, i uint8) {
	if w.rules&settleChecked == 0 {
		w.claimAny(s, i, 0, w.polled(s))
		return
	}
	for view := range s.newest + 1 {
		w.claimAny(s, i, view, w.path[view].scanned())
	}
}

func (w *system) polled(s *state) uint8 {
	var n uint8
	for _, p := range w.path[:s.newest+1] {
		n = max(n, p.scanned())
	}
	return n
}

func (w *system) claimAny(s *state, i, view, shards uint8) {
	for at := range shards {
		for id := range w.tasks {
			w.claim(s, i, view, at, id)
			w.remember(s, i, view, at, id)
		}
	}
}

// claim leases a due task. A task with an expired lease gets its earlier score back if
// that score is in the future.
func (w *system) claim(s *state, i, view, at, id uint8) {
	l := s.shards[at].slots[id]
	due := s.due&bit(l.version) != 0
	ranOut := l.state == leased && l.lapsed != 0
	st := did("scanner", i, "claim").of(id, l.version).on(at)
	switch {
	case ranOut && (!due || l.parked != 0 && w.rules&noPrior == 0):
		n := *s
		n.shards[at].slots[id] = slot{state: waiting, version: l.version, parked: l.parked, run: l.run}
		w.emit(s, &n, st.answer("back to the score that it had before its export"))
	case ranOut, l.state == waiting && due && l.parked == 0:
		n := *s
		n.shards[at].slots[id] = slot{leased, l.version, maxMovers + i + 1, 0, 0, l.run}
		n.scanners[i] = scanner{at: scannerClaimed, view: view, shard: at, id: id, version: l.version, run: l.run}
		w.emit(s, &n, st.breaks(w.claimBreaks(s, l.version)))
		if w.lost&lostClaim != 0 {
			n := *s
			n.shards[at].slots[id] = slot{leased, l.version, nobody, 0, 0, l.run}
			w.emit(s, &n, st.answer("done, but the reply is lost").maybe())
		}
	}
}

// remember answers a claim with the batch of another claim in progress. A worker of the
// same name had given its request the same number.
func (w *system) remember(s *state, i, view, at, id uint8) {
	l := s.shards[at].slots[id]
	if w.rules&renumbered == 0 || l.state != leased || l.token <= maxMovers || l.token == nobody ||
		l.token == maxMovers+i+1 {
		return
	}
	n := *s
	n.scanners[i] = scanner{at: scannerClaimed, view: view, shard: at, id: id, version: l.version, run: l.run}
	w.emit(s, &n, did("scanner", i, "claim").of(id, l.version).on(at).answer("remembered"))
}

func (w *system) claimBreaks(s *state, version uint8) promises {
	broken := w.overruled(s, w.writer[version])
	if s.parked&bit(version) != 0 {
		broken |= staysParked
	}
	return broken
}

// forward publishes a claimed task, then settles or parks it.
func (w *system) forward(s *state, i uint8) {
	a := s.scanners[i]
	token := maxMovers + i + 1
	if a.lapsed == 0 && w.stall&a.at.point() != 0 {
		n := *s
		n.scanners[i].lapsed = 1
		n.lapse(token)
		w.emit(s, &n, did("scanner", i, "sleeps past its lease").maybe())
	}
	if w.crash&a.at.point() != 0 {
		n := *s
		n.abandon(token)
		n.scanners[i] = scanner{}
		w.emit(s, &n, did("scanner", i, "dies").maybe())
	}
	if a.at == scannerClaimed {
		w.publish(s, i)
		return
	}
	w.settle(s, i, token)
}

// publish delivers a run. A recurring task is delivered when its last run is.
func (w *system) publish(s *state, i uint8) {
	n := *s
	a := s.scanners[i]
	n.scanners[i].at = scannerPublished
	if w.promises&once != 0 && s.ran[a.version]&bit(a.run) != 0 {
		n.firedAgain |= bit(a.version)
	}
	n.ran[a.version] |= bit(a.run)
	if a.run+1 >= w.runs {
		n.fired |= bit(a.version)
	}
	st := did("scanner", i, "publishes").of(a.id, a.version)
	if before := bit(a.run) - 1; s.ran[a.version]&before != before {
		st = st.breaks(gapless)
	}
	w.emit(s, &n, st)
}

// settle removes the task if it is still leased under the scanner's token, or makes its next
// run wait.
func (w *system) settle(s *state, i, token uint8) {
	n := *s
	a := n.scanners[i]
	sh := &n.shards[a.shard]
	l := &sh.slots[a.id]
	held := l.token == token
	st := did("scanner", i, "settle").of(a.id, a.version).on(a.shard)
	if w.rules&settleChecked != 0 && w.epoch(a.view) < w.epoch(sh.fence) {
		st = st.answer("MOVED")
	} else if held {
		*l = slot{}
		w.nextRun(&n, l, a)
	} else if w.rules&tokenless != 0 && l.version == a.version {
		a.run = l.run
		w.nextRun(&n, l, a)
	}
	n.abandon(token)
	n.scanners[i] = scanner{}
	w.emit(s, &n, st)
	if w.park && held {
		*l = slot{state: waiting, version: a.version, parked: 1}
		n.parked |= bit(a.version)
		w.emit(s, &n, did("scanner", i, "park").of(a.id, a.version).on(a.shard).maybe())
	}
}

// nextRun makes the run after a delivered one wait, if there is one. It is due later.
func (w *system) nextRun(n *state, l *slot, a scanner) {
	if a.run+1 < w.runs {
		*l = slot{state: waiting, version: a.version, run: a.run + 1}
		n.due &^= bit(a.version)
	}
}
