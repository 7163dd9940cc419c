package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// TestMovesOfManyTasks have the results of their own tasks, although a script takes only
// some of them. The last move of an ID wins.
func TestMovesOfManyTasks(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.In(time.Hour), "a")
	c.plant("cut", cutRecord, float64(c.now()+time.Hour.Milliseconds()))
	large := Put{Op: NewOp()}
	for i := range 3 {
		large.Entries = append(large.Entries, Entry{ID: fmt.Sprint("large ", i), When: task.In(time.Hour),
			Body: body(strings.Repeat("x", moveBytes/2+1))})
	}
	check.OK(c.t, c.tryPut(c.p, large).Err)
	check.OK(c.t, c.tryPut(c.p, Put{Shard: 1, Entries: []Entry{entry("b", task.In(time.Hour))}}).Err)
	var moves []Move
	move := func(shard int, id string, hours int) {
		moves = append(moves, Move{Shard: shard, Op: NewOp(), ID: id, When: task.In(time.Duration(hours) * time.Hour)})
	}
	for i := range 3 {
		move(0, fmt.Sprint("large ", i), 2)
	}
	for range movesAtOnce {
		move(0, "a", 2)
		move(0, "absent", 2)
	}
	move(0, "cut", 2)
	move(1, "b", 3)
	move(0, "large 1", 4)
	move(0, "a", 5)
	began := c.now()
	for i, r := range c.Reschedule(c.t.Context(), c.p, c.notAfter(), moves) {
		switch id := moves[i].ID; id {
		case "absent":
			check.Equal(t, "absent", errors.Is(r.Err, task.ErrNotFound), true)
		case "cut":
			check.Equal(t, "cut", errors.Is(r.Err, errUnreadable), true)
		default:
			check.OK(c.t, r.Err)
			wait, _ := moves[i].When.Wait()
			if r.Due < began+wait.Milliseconds() {
				t.Errorf("task %s: due %d, at %d for %s", id, r.Due, began, wait)
			}
		}
	}
	stored := map[string]Stored{"b": c.at1("b")}
	for _, id := range []string{"large 0", "large 1", "large 2", "a"} {
		stored[id] = c.read(id)
	}
	for id, hours := range map[string]int64{"large 0": 2, "large 1": 4, "large 2": 2, "a": 5, "b": 3} {
		if due := stored[id].Due.UnixMilli() - began; due/time.Hour.Milliseconds() != hours {
			t.Errorf("task %s is due in %d ms, want %d hours", id, due, hours)
		}
	}
}

// TestAMoveEndsAtItsLimit of bytes. The next call has the rest.
func TestAMoveEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	ids := []string{"a", "b", "c"}
	c.put(task.In(time.Hour), ids...)
	moves := make([]Move, len(ids))
	for i, id := range ids {
		moves[i] = Move{Op: NewOp(), ID: id, When: task.In(time.Minute)}
	}
	for n, bytes := range []int{1, len(c.rdb.HGet(c.t.Context(), c.Shard(0).tasks(), "a").Val()) + 1, moveBytes} {
		call := c.moveCall(c.p.String(), c.notAfter(), moves, batchesOf(moves)[0])
		call.Args[4] = bytes
		reply, err := c.pipelined(call)[0].Slice()
		check.OK(c.t, err)
		check.Equal(t, "answers", len(reply)-1, n+1)
		for i, id := range ids {
			moved := c.read(id).Due.Before(time.UnixMilli(c.now()).Add(30 * time.Minute))
			check.Equal(t, id+" is moved", moved, i <= n)
		}
	}
}

// TestMovesWaitOnceForReplicas that are missing: all their scripts together.
func TestMovesWaitOnceForReplicas(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	var moves []Move
	for i := range movesAtOnce + 1 {
		moves = append(moves, Move{Op: NewOp(), ID: fmt.Sprint(i), When: task.In(time.Minute)})
		c.put(task.In(time.Hour), moves[i].ID)
	}
	// Redis may not have heard of the script, and a call that is sent again waits again.
	first := Move{Op: NewOp(), ID: "0", When: task.In(2 * time.Hour)}
	check.OK(c.t, c.Reschedule(c.t.Context(), c.p, c.notAfter(), []Move{first})[0].Err)
	check.OK(c.t, c.scripts.AwaitReplicas(2)) // in the shared cluster, each master has one
	waits := 0
	faults.Before(c.rdb, func(r faults.Request) {
		for _, cmd := range r.Commands {
			if cmd.Name() == "wait" {
				waits++
			}
		}
	})
	for i, r := range c.Reschedule(c.t.Context(), c.p, c.notAfter(), moves) {
		if !errors.Is(r.Err, task.ErrReplicas) || r.Due == 0 {
			t.Fatalf("move %d: due %d, %v", i, r.Due, r.Err)
		}
	}
	if !c.store.Clustered() { // a client of a cluster has no hook where it sends WAIT
		check.Equal(t, "waits", waits, 1)
	}
	check.Equal(t, "the last is moved", c.read(fmt.Sprint(movesAtOnce)).Due.Before(time.UnixMilli(c.now()+120_000)), true)
}
