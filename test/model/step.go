package model

import (
	"fmt"
	"strings"
)

// step is one line of a trace.
type step struct {
	who, what, reply         string
	number                   uint8
	id, version, shard, view int8
	waited                   int8 // the shard whose replica the caller waited for
	optional                 bool // it may never happen: a change must end without it
	broken                   promises
}

func did(who string, number uint8, what string) step {
	return step{who: who, number: number, what: what, id: -1, version: -1, shard: -1, view: -1, waited: -1}
}

func (st step) of(id, version uint8) step {
	st.id, st.version = int8(id), int8(version)
	return st
}

func (st step) on(shard uint8) step {
	st.shard = int8(shard)
	return st
}

func (st step) under(view uint8) step {
	st.view = int8(view)
	return st
}

func (st step) answer(reply string) step {
	st.reply = reply
	return st
}

func (st step) acked(shard uint8) step {
	st.waited = int8(shard)
	return st
}

func (st step) maybe() step {
	st.optional = true
	return st
}

func (st step) breaks(p promises) step {
	st.broken |= p
	return st
}

// say returns the step as a line of text.
func (w *system) say(st step) string {
	var b strings.Builder
	b.WriteString(st.who)
	switch st.who {
	case "producer", "mover", "scanner", "replica":
		fmt.Fprintf(&b, " %d", st.number)
	}
	fmt.Fprintf(&b, ": %s", st.what)
	if st.id >= 0 {
		fmt.Fprintf(&b, " task %d", st.id)
	}
	if st.version > 0 {
		fmt.Fprintf(&b, " version %d", st.version)
	}
	if st.shard >= 0 {
		fmt.Fprintf(&b, " at shard %d", st.shard)
	}
	if st.view >= 0 {
		fmt.Fprintf(&b, " under %q", w.path[st.view])
	}
	if st.reply != "" {
		fmt.Fprintf(&b, ": %s", st.reply)
	}
	return b.String()
}
