package shard

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestAVersionOfTheSameMillisecondHasAnotherDueTime: consumers tell deliveries of one ID
// by their due times. A task is put, claimed, and put or moved again within one ms.
func TestAVersionOfTheSameMillisecondHasAnotherDueTime(t *testing.T) {
	t.Parallel()
	for name, newer := range map[string]func(c *sandbox) luascript.Call{
		"put": func(c *sandbox) luascript.Call {
			return c.Shard(0).putCall(c.t.Context(), &put{batch: &Put{Op: NewOp(), Entries: []Entry{entry("a", task.Now())}},
				placement: c.p.String()}, c.notAfter())
		},
		"put for a time that is past": func(c *sandbox) luascript.Call {
			b := &Put{Op: NewOp(), Entries: []Entry{entry("a", task.At(time.UnixMilli(1)))}}
			return c.Shard(0).putCall(c.t.Context(), &put{batch: b, placement: c.p.String()}, c.notAfter())
		},
		"reschedule": func(c *sandbox) luascript.Call {
			moves := []Move{{Op: NewOp(), ID: "a", When: task.Now()}}
			return c.moveCall(c.p.String(), c.notAfter(), moves, batchesOf(moves)[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			c.put(task.Now(), "a")
			_, _ = c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: "a", When: task.Now()})
			c.claim() // Redis knows the scripts
			check.Until(t, "all of it happens within one ms", func() bool {
				first := c.Shard(0).putCall(c.t.Context(), &put{batch: &Put{Op: NewOp(), Entries: []Entry{entry("a", task.Now())}},
					placement: c.p.String()}, c.notAfter())
				claim := luascript.Call{
					Script: "claim", Keys: []string{c.Shard(0).due(), c.Shard(0).tasks(), c.Shard(0).fence(), c.Shard(0).memory("w")},
					Args: []any{string(NewOp()), 1, time.Minute.Milliseconds(), claimBudget, c.notAfter(), 0, 0},
				}
				var replies [5][]any
				for i, cmd := range c.pipelined(first, claim, newer(c), newer(c), newer(c)) {
					reply, err := cmd.Slice()
					check.OK(c.t, err)
					replies[i] = reply
				}
				claimed, _ := replies[0][1].(int64)
				moment := func(due any) bool { ms, _ := due.(int64); return ms == claimed || ms == claimed+1 }
				if len(replies[1]) == claimHead || !moment(replies[4][1]) {
					return false // it took longer
				}
				for i, r := range replies[2:] {
					if r[1] == claimed {
						t.Errorf("version %d is due at %v, as the claimed one", i+2, r[1])
					}
				}
				return true
			})
		})
	}
}

// TestADueTimeStaysAsItIs: of what isn't due, and of what replaces an older task.
func TestADueTimeStaysAsItIs(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := time.Now().Add(time.Hour)
	for range 3 {
		check.Equal(t, "due", c.put(task.At(due), "a")[0], due.UnixMilli())
	}
	c.put(task.In(-time.Minute), "b")
	check.Until(t, "a ms goes by", func() bool { return c.now() > c.read("b").Due.UnixMilli()+1 })
	r := c.tryPut(c.p, Put{Entries: []Entry{entry("b", task.Now())}})
	check.OK(c.t, r.Err)
	check.Equal(t, "due", r.Due[0], c.read("b").Scheduled.UnixMilli())
}

// pipelined sends calls at once.
func (c *sandbox) pipelined(calls ...luascript.Call) []*redis.Cmd {
	c.t.Helper()
	pipe := c.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, call := range calls {
		cmds[i] = c.command(call)
		check.OK(c.t, pipe.Process(c.t.Context(), cmds[i]))
	}
	_, err := pipe.Exec(c.t.Context())
	check.OK(c.t, err)
	return cmds
}
