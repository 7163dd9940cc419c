package shard

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestHeads: what the first score of a shard tells.
func TestHeads(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	head := func() Head {
		t.Helper()
		heads := c.store.Heads(c.t.Context(), []Shard{c.Shard(0), c.Shard(1)})
		if len(heads) != 2 || heads[1] != (Head{}) {
			t.Fatalf("%+v, want two, the second empty", heads)
		}
		return heads[0]
	}
	is := func(when string, want Head) {
		t.Helper()
		if got := head(); got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	is("nothing is stored", Head{})
	c.put(task.Now(), "parked")
	c.park("parked", "no route")
	is("a task is parked", Head{})
	due := c.put(task.In(time.Hour), "later")
	is("a task waits", Head{Due: time.UnixMilli(due[0])})
	c.put(task.Now(), "now")
	c.claim()
	is("a task is leased", Head{Leased: true})
	check.OK(c.t, c.rdb.Del(c.t.Context(), c.Shard(0).due()).Err())
	check.OK(c.t, c.rdb.Set(c.t.Context(), c.Shard(0).due(), "of another type", 0).Err())
	if h := head(); h.Err == nil {
		t.Errorf("a key of another type: %+v, want an error", h)
	}
}

// TestManyHeads: more than one pipeline takes.
func TestManyHeads(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := c.put(task.In(time.Hour), "later")
	shards := make([]Shard, 2*commandsAtOnce+1)
	for i := range shards {
		shards[i] = c.Shard(i % 2)
	}
	for i, h := range c.store.Heads(c.t.Context(), shards) {
		if want := i%2 == 0; h.Err != nil || h.Due.Equal(time.UnixMilli(due[0])) != want {
			t.Fatalf("head %d: %+v", i, h)
		}
	}
}
