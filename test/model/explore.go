package model

import (
	"fmt"
	"hash/maphash"
	"slices"
)

// report is the result of an exploration.
type report struct {
	states, steps int
	broken        promises
	trace         []string // to the first state or step that breaks a promise
}

func (r report) String() string {
	if r.broken == 0 {
		return fmt.Sprintf("%d states, %d steps: every promise is kept", r.states, r.steps)
	}
	return fmt.Sprintf("%d states, %d steps: %s", r.states, r.steps, describe(r.broken))
}

// search is an exploration in progress, breadth first.
type search struct {
	*system
	found  table
	parent []int32
	ways   [][2]int32 // healthy steps, as pairs of states; checkEnds uses them
	report
}

// explore visits every state that a scope can reach. It stops at the first broken
// promise.
func explore(sc scope) report {
	x := &search{system: newSystem(sc), found: newTable()}
	_, _ = x.add(state{}, -1)
	for at := int32(0); int(at) < len(x.found.states) && x.report.broken == 0; at++ {
		s := x.found.states[at]
		x.next(&s, func(n *state, st step) { x.meet(at, n, st) })
	}
	x.states = len(x.found.states)
	if x.liveness && x.report.broken == 0 {
		x.checkEnds()
	}
	return x.report
}

func (x *search) add(s state, parent int32) (at int32, fresh bool) {
	at, fresh = x.found.add(s)
	if fresh {
		x.parent = append(x.parent, parent)
	}
	return at, fresh
}

func (x *search) meet(from int32, n *state, st step) {
	x.steps++
	if x.report.broken != 0 {
		return
	}
	c := *n
	x.canonical(&c)
	to, fresh := x.add(c, from)
	if fresh && st.broken == 0 {
		st.broken = x.system.broken(n)
	}
	if st.broken != 0 {
		x.report.broken = st.broken
		x.trace = x.tell(from, st.broken)
		return
	}
	if x.liveness && !st.optional {
		x.ways = append(x.ways, [2]int32{from, to})
	}
}

// tell returns the trace to a state and, if given, the step that breaks a promise. Movers
// and scanners of stored states are sorted, so tell replays the steps to give each its
// name.
func (x *search) tell(to int32, broken promises) (lines []string) {
	var way []int32
	for at := to; at > 0; at = x.parent[at] {
		way = append(way, at)
	}
	slices.Reverse(way)
	var s state
	for _, at := range way {
		from, said := s, false
		x.next(&from, func(n *state, st step) {
			c := *n
			x.canonical(&c)
			if !said && c == x.found.states[at] {
				said, s = true, *n
				lines = append(lines, x.say(st))
			}
		})
	}
	said := broken == ends
	x.next(&s, func(n *state, st step) {
		if st.broken == 0 {
			st.broken = x.system.broken(n)
		}
		if !said && st.broken == broken {
			said = true
			lines = append(lines, x.say(st))
		}
	})
	return lines
}

// checkEnds reports a state from which healthy steps don't lead to a stable placement.
func (x *search) checkEnds() {
	back := make([][]int32, len(x.found.states))
	for _, way := range x.ways {
		back[way[1]] = append(back[way[1]], way[0])
	}
	good := make([]bool, len(back))
	var todo []int32
	for i, s := range x.found.states {
		if x.path[s.placement].phase == stable && x.inForce(&s) == s.placement {
			good[i] = true
			todo = append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range back[at] {
			if !good[from] {
				good[from] = true
				todo = append(todo, from)
			}
		}
	}
	if at := slices.Index(good, false); at >= 0 {
		x.report.broken = ends
		x.trace = x.tell(int32(at), ends)
	}
}

// table is the set of states found, each with its number. It holds every state once; a
// map would hold a second copy as its key.
type table struct {
	states []state
	slots  []int32 // numbers from 1, by hash, with open addressing
	seed   maphash.Seed
}

func newTable() table {
	return table{slots: make([]int32, 1<<12), seed: maphash.MakeSeed()}
}

func (t *table) add(s state) (number int32, fresh bool) {
	if 2*len(t.states) >= len(t.slots) {
		t.grow()
	}
	at := t.find(&s)
	if t.slots[at] != 0 {
		return t.slots[at] - 1, false
	}
	t.states = append(t.states, s)
	t.slots[at] = int32(len(t.states))
	return int32(len(t.states) - 1), true
}

// find returns the slot of a state, or the free slot where it belongs.
func (t *table) find(s *state) uint64 {
	mask := uint64(len(t.slots) - 1)
	at := maphash.Comparable(t.seed, *s) & mask
	for t.slots[at] != 0 && t.states[t.slots[at]-1] != *s {
		at = (at + 1) & mask
	}
	return at
}

func (t *table) grow() {
	t.slots = make([]int32, 2*len(t.slots))
	for i := range t.states {
		t.slots[t.find(&t.states[i])] = int32(i + 1)
	}
}
