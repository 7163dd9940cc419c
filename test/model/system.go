package model

import "strings"

// system is the transition system of a scope: from a state it computes all next states.
type system struct {
	scope
	programs [][]uint8 // operations of each producer
	ops      []planned
	writer   [maxOperations + 1]uint8 // the operation that wrote a version
	tasks    uint8
	shards   uint8

	visit func(n *state, st step)
}

func newSystem(sc scope) *system {
	w := &system{scope: sc}
	if len(w.homes) == 0 {
		w.homes = [][3]uint8{{0, 1, 2}, {0, 0, 0}}
	}
	for _, p := range w.path {
		w.shards = max(w.shards, p.shards, p.previous)
	}
	version := uint8(0)
	for _, text := range strings.Split(sc.programs, ";") {
		var program []uint8
		for i := 0; i < len(text); i += 2 {
			op := planned{kind: kind(text[i]), id: text[i+1] - '0'}
			w.tasks = max(w.tasks, op.id+1)
			if op.kind != 'C' && op.kind != 'G' {
				version++
				op.version = version
				w.writer[version] = uint8(len(w.ops))
			}
			program = append(program, uint8(len(w.ops)))
			w.ops = append(w.ops, op)
		}
		w.programs = append(w.programs, program)
	}
	w.runs = max(w.runs, 1)
	if w.movers == 0 {
		w.movers = 2
	}
	if w.scanners == 0 {
		w.scanners = 1
	}
	return w
}

// next visits all states that may follow a state.
func (w *system) next(s *state, visit func(n *state, st step)) {
	w.visit = visit
	w.produce(s)
	w.move(s)
	w.scan(s)
	w.place(s)
	w.fall(s)
	w.tick(s)
	for at := range w.shards {
		w.lapse(s, at)
		w.traffic(s, at)
		w.strike(s, at)
	}
	w.socket(s)
}

// emit updates the replicas and producers of the next state, then passes it to visit.
func (w *system) emit(s, n *state, st step) {
	if w.failover && n.struck == s.struck {
		w.replicate(s, n, st)
	}
	w.unsteady(n)
	st.broken &= w.promises
	w.visit(n, st)
}

// unsteady notes for each running operation that its task was absent at some moment.
func (w *system) unsteady(n *state) {
	for i := range w.programs {
		p := &n.producers[i]
		if p.steady == 0 {
			continue
		}
		op := w.ops[w.programs[i][p.next]]
		if op.kind == 'R' && !w.authoritative(n, op.id) || op.kind != 'R' && !w.present(n, op.id) {
			p.steady = 0
		}
	}
}

// place changes the placement. If a fence has seen a newer placement than the key holds,
// the fleet restores that one instead of beginning a change.
func (w *system) place(s *state) {
	for at := range w.path[s.placement].scanned() {
		if seen := s.shards[at].fence; w.epoch(seen) > w.epoch(s.placement) {
			n := *s
			n.placement = seen
			w.emit(s, &n, did("fleet", 0, "restores the placement").on(at).under(seen))
		}
	}
	if int(s.placement) == len(w.path)-1 {
		return
	}
	from, to := w.path[s.placement], w.path[s.placement+1]
	if from.phase == migrating && to.phase == stable {
		shards := from.scanned()
		if w.rules&newRange != 0 {
			shards = from.shards
		}
		if all := bit(shards) - 1; w.marks(s)&all != all {
			return
		}
	}
	if from.phase == stable && w.inForce(s) != s.placement {
		return
	}
	n := *s
	n.placement++
	n.newest = max(n.newest, n.placement)
	if !w.falls || w.rules&untied != 0 { // otherwise marks of another placement don't count anyway
		n.clean, n.cleanOf = 0, 0
	}
	st := did("fleet", 0, "changes the placement").under(n.placement)
	if from.phase == stable {
		st = st.maybe()
	}
	w.emit(s, &n, st)
}

// tick makes versions due, except exported ones: a mover exports a task long before its
// due time.
func (w *system) tick(s *state) {
	for _, op := range w.ops {
		if op.version == 0 || s.due&bit(op.version) != 0 || w.rules&exportDue == 0 && w.isExported(s, op) {
			continue
		}
		n := *s
		n.due |= bit(op.version)
		w.emit(s, &n, did("clock", 0, "makes a version due").of(op.id, op.version))
	}
}

func (w *system) isExported(s *state, op planned) bool {
	for _, m := range s.movers {
		if m.holds() && m.version == op.version && m.lapsed == 0 {
			return true
		}
	}
	for i := range s.shards {
		if l := s.shards[i].slots[op.id]; l.state == leased && l.version == op.version && l.lapsed == 0 {
			return true
		}
	}
	return false
}

// lapse lets leases expire whose owner is gone.
func (w *system) lapse(s *state, at uint8) {
	for id := range w.tasks {
		if l := s.shards[at].slots[id]; l.state == leased && l.token == nobody && l.lapsed == 0 {
			n := *s
			n.shards[at].slots[id].lapsed = 1
			w.emit(s, &n, did("clock", 0, "ends a lease nobody holds").of(id, l.version).on(at))
		}
	}
}

// traffic lets other tasks show a placement to a shard.
func (w *system) traffic(s *state, at uint8) {
	if w.quiet {
		return
	}
	for view := range s.newest + 1 {
		if at < w.path[view].scanned() && w.epoch(view) > w.epoch(s.shards[at].fence) {
			n := *s
			w.check(&n.shards[at], view)
			w.emit(s, &n, did("another task", 0, "fences").on(at).under(view).acked(at))
		}
	}
}
