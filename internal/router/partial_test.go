package router

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestAnOldShardThatFailsFailsItsOwnTasksAlone: of one call during a change of the shard
// count, with and without IfAbsent.
func TestAnOldShardThatFailsFailsItsOwnTasksAlone(t *testing.T) {
	t.Parallel()
	for name, absent := range map[string]bool{"replacing": false, "if absent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 4)
			c.begin(8)
			check.OK(c.t, c.rdb.Del(c.t.Context(), c.key("fence", 2)).Err())
			check.OK(c.t, c.rdb.Set(c.t.Context(), c.key("fence", 2), "no hash", 0).Err())
			var entries []shard.Entry
			for i := range 100 {
				e := entry(fmt.Sprint("t", i), task.In(time.Hour))
				e.IfAbsent = absent
				entries = append(entries, e)
			}
			failed := 0
			for i, s := range c.Router("orders").Schedule(c.t.Context(), entries) {
				id := entries[i].ID
				bad := c.p.Old(id) == 2
				if bad {
					failed++
				}
				if (s.Err != nil) != bad {
					t.Errorf("task %s from shard %d to %d: %v", id, c.p.Old(id), c.p.New(id), s.Err)
				}
			}
			if failed == 0 || failed == len(entries) {
				t.Fatalf("%d of %d tasks are of the shard that fails", failed, len(entries))
			}
		})
	}
}

// TestARecordThatCannotBeReadIsThere: a record at the old shard that can't be read
// counts as there. A task with IfAbsent is refused; the others of its call are stored.
func TestARecordThatCannotBeReadIsThere(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "unreadable")
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.key("task", 0), "unreadable", "\xff").Err())
	c.begin(50)
	if !c.p.Moving("unreadable") {
		t.Fatal("it stays where it is")
	}
	hour := task.In(time.Hour)
	entries := []shard.Entry{entry("unreadable", hour), entry("a", hour), entry("b", hour)}
	for i := range entries {
		entries[i].IfAbsent = true
	}
	results := c.Router("orders").Schedule(c.t.Context(), entries)
	if !errors.Is(results[0].Err, task.ErrExists) {
		t.Errorf("one that is there: %v, want %v", results[0].Err, task.ErrExists)
	}
	for i, s := range results[1:] {
		if s.Err != nil {
			t.Errorf("task %s: %v", entries[i+1].ID, s.Err)
		}
	}
}
