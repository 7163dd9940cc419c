package router

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestAReplyOfManyTasksIsBounded: the record that reaches the limit is the last, and a
// reply holds at least one.
func TestAReplyOfManyTasksIsBounded(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	var ids []string
	for i := range 5 {
		ids = append(ids, fmt.Sprint("large-", i))
		large := shard.Entry{ID: ids[i], When: task.In(time.Hour), Body: body(strings.Repeat("x", 600<<10))}
		check.OK(c.t, c.tryPut(c.p, shard.Put{Entries: []shard.Entry{large}}).Err)
	}
	ids = append(ids, "none")
	for at, want := range map[int]int{0: 2, 4: 2, 5: 1} {
		fetched := c.Fetch(c.t.Context(), c.p, []shard.Names{{Shard: 0, IDs: ids[at:]}})[0]
		check.OK(c.t, fetched.Err)
		check.Equal(t, fmt.Sprint("tasks from ", at), len(fetched.Tasks), want)
	}
	got := c.Router("orders").GetMany(c.t.Context(), ids)
	for i, g := range got[:5] {
		if g.Err != nil || g.Task.ID != ids[i] || len(g.Task.Payload) != 600<<10 {
			t.Errorf("%s: %d bytes, %v", ids[i], len(g.Task.Payload), g.Err)
		}
	}
	if !errors.Is(got[5].Err, task.ErrNotFound) {
		t.Errorf("got %v", got[5].Err)
	}
}

// TestWhatCannotBeReadIsAnErrorOfItsTaskAlone, also if a record or its score is missing.
func TestWhatCannotBeReadIsAnErrorOfItsTaskAlone(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "cut", "norecord", "noscore", "whole")
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.key("task", 0), "cut", "\x14cut").Err())
	check.OK(c.t, c.rdb.HDel(c.t.Context(), c.key("task", 0), "norecord").Err())
	check.OK(c.t, c.rdb.ZRem(c.t.Context(), c.key("due", 0), "noscore").Err())
	ids := []string{"cut", "norecord", "noscore", "whole"}
	got := c.Router("orders").GetMany(c.t.Context(), ids)
	for i, want := range []string{"record of 4 bytes is cut short", "it has no record", "it has a record and no score"} {
		if got[i].Err == nil || !strings.Contains(got[i].Err.Error(), want) || errors.Is(got[i].Err, task.ErrNotFound) {
			t.Errorf("%s: got %v, want %q", ids[i], got[i].Err, want)
		}
	}
	check.OK(c.t, got[3].Err)
}

// TestAProducerMayListAndReadAndCancelMany with the rights in deploy/redis.
func TestAProducerMayListAndReadAndCancelMany(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	store, err := shard.New(g.as("producer"), "duefleet")
	check.OK(g.t, err)
	ids := []string{"a", "b"}
	entries := []shard.Entry{entry("a", task.In(time.Hour)), entry("b", task.In(time.Hour))}
	for _, s := range New(store).Topic("orders").Schedule(g.t.Context(), entries) {
		check.OK(g.t, s.Err)
	}
	for _, w := range []shard.Wanted{{}, {State: task.Waiting}, {From: time.Now()}} {
		page, err := store.Topic("orders").Listing(w).Next(g.t.Context())
		check.OK(g.t, err)
		check.Equal(t, "listed", len(page) > 0, true)
	}
	for _, got := range New(store).Topic("orders").GetMany(g.t.Context(), ids) {
		check.OK(g.t, got.Err)
	}
	for _, err := range New(store).Topic("orders").CancelMany(g.t.Context(), append(ids, "c"), 1<<10)[:2] {
		check.OK(g.t, err)
	}
}
