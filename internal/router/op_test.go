package router

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// TestACallThatIsRepeatedWithItsOpsIsKnown: tasks with IfAbsent keep their due times and
// don't count as there, also if a change of the shard count begins in between. Another op
// doesn't pass for the first.
func TestACallThatIsRepeatedWithItsOpsIsKnown(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*sandbox){
		"while nothing moves": func(*sandbox) {}, "after a change began": func(c *sandbox) { c.begin(8) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 4)
			var entries []shard.Entry
			shared := shard.NewOp()
			for i := range 40 {
				e := entry(fmt.Sprint("t", i), task.In(time.Hour))
				if e.Op = shared; i%2 == 0 {
					e.IfAbsent, e.Op = true, shard.NewOp()
				}
				entries = append(entries, e)
			}
			first := c.Router("orders").Schedule(c.t.Context(), entries)
			change(c)
			for i, s := range c.Router("orders").Schedule(c.t.Context(), entries) {
				if s.Err != nil || first[i].Err != nil || entries[i].IfAbsent && s.Due != first[i].Due {
					t.Errorf("%s: first %+v, then %+v", entries[i].ID, first[i], s)
				}
				entries[i].Op, entries[i].IfAbsent = shard.NewOp(), true
			}
			for i, s := range c.Router("orders").Schedule(c.t.Context(), entries) {
				if !errors.Is(s.Err, task.ErrExists) {
					t.Errorf("%s with another op: %+v", entries[i].ID, s)
				}
			}
		})
	}
}
