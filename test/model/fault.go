package model

// fall is the only fault of the server with the placement key. The server fails over to a
// replica that may be far behind, so the placement falls back to an older one.
func (w *system) fall(s *state) {
	if !w.falls || s.struck != 0 || s.copied == s.key {
		return
	}
	n := *s
	n.copied = s.key
	w.emit(s, &n, did("placement's replica", 0, "catches up"))
	n = *s
	n.struck = 1
	n.key, n.copied = s.copied, key{}
	w.emit(s, &n, did("failover", 0, "the placement falls back").under(n.placement).maybe())
}

// strike is the only fault of a shard's server. It fails over to its replica, or restarts
// with its data.
func (w *system) strike(s *state, at uint8) {
	if s.struck != 0 {
		return
	}
	behind := w.failover && s.replicas[at] != s.shards[at]
	if behind && w.rules&waits != 0 {
		n := *s
		n.replicas[at] = s.shards[at]
		w.emit(s, &n, did("replica", at, "catches up"))
	}
	if behind {
		n := *s
		n.struck = 1
		n.shards[at] = s.replicas[at]
		n.replicas = [maxShards]shard{}
		w.emit(s, &n, did("failover", 0, "the replica takes over").on(at).maybe())
	}
	if w.restart {
		n := *s
		n.struck = 1
		n.shards[at].order ^= 1
		if w.rules&keepCursor == 0 {
			n.restart(at)
		}
		w.emit(s, &n, did("restart", 0, "the server restarts").on(at).maybe())
	}
}

// replicate updates the replicas after a step. If callers don't wait for replicas, each
// replica is one step behind. If they do (rule waits), a replica may be far behind, but
// has everything that a caller waited for.
func (w *system) replicate(s, n *state, st step) {
	for i := range w.shards {
		switch {
		case w.rules&waits == 0 && n.shards[i] != s.shards[i]:
			n.replicas[i] = s.shards[i]
			for j := range n.replicas[i].slots {
				if l := &n.replicas[i].slots[j]; l.token != 0 && l.token != nobody && !n.held(l.token) {
					l.token = nobody
				}
			}
		case w.rules&waits != 0 && st.waited == int8(i) && !w.unwaited(st):
			n.replicas[i] = n.shards[i]
		}
	}
}

func (w *system) unwaited(st step) bool {
	switch st.what {
	case "import":
		return w.rules&noWaitImport != 0
	case "look: clean":
		return w.rules&noWaitLook != 0
	case "fence", "fences":
		return w.rules&noWaitFence != 0
	}
	return false
}

// socket handles a copy of a script that waits in a socket after its caller gave up on
// the reply. Either the copy still runs, or its deadline passes.
func (w *system) socket(s *state) {
	c := s.copy
	if c.verb == noCall {
		return
	}
	op := w.ops[c.op]
	n := *s
	n.copy = call{}
	w.emit(s, &n, did("socket", 0, "drops the late copy").of(op.id, op.version))
	n = *s
	n.copy = call{}
	if w.perform(&n, c) == moved {
		return
	}
	st := did("socket", 0, "executes the late copy: ").of(op.id, op.version).on(c.shard).under(c.view)
	st.reply = c.verb.String()
	w.emit(s, &n, st.maybe())
}
