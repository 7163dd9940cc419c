package router

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// inGroup is an entry of a task in a group.
func inGroup(group, id string) shard.Entry {
	body, _ := shard.Encode(&task.Task{Group: group, Payload: []byte("payload of " + id)})
	return shard.Entry{ID: id, When: task.In(time.Hour), Body: body}
}

// member adds a member to the index, of a version that began some time ago.
func (c *sandbox) member(group, id string, ago time.Duration) {
	c.t.Helper()
	m := shard.NewMark(c.now()-ago.Milliseconds()).Set(id, inGroup(group, id).Body)
	check.OK(c.t, c.Join(c.t.Context(), []shard.Member{m})[0])
}

// index returns the groups and IDs that the index holds, by group.
func (c *sandbox) index() map[string][]string {
	c.t.Helper()
	all := map[string][]string{}
	for _, part := range c.Index() {
		for {
			page, err := part.Next(c.t.Context(), 500)
			check.OK(c.t, err)
			if len(page) == 0 {
				break
			}
			for _, m := range page {
				all[m.Group] = append(all[m.Group], m.ID)
			}
		}
	}
	return all
}

// TestASweepRemovesWhatACrashLeft and nothing else: not the member of a stored version, and not
// one whose version may still come.
func TestASweepRemovesWhatACrashLeft(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 4)
	r := c.Router("orders")
	const old = 20 * time.Minute
	c.member("never stored", "a", old)
	c.member("replaced", "b", old)
	check.OK(c.t, r.Schedule(c.t.Context(), []shard.Entry{inGroup("stored", "b"), entry("e", task.In(time.Hour))})[0].Err)
	c.member("may come", "c", 5*time.Minute)
	c.member("without a group", "e", old)
	c.member("unreadable", "d", old)
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.key("task", c.p.New("d")), "d", "\x10cut").Err())
	swept := 0
	for _, part := range c.Index() {
		for over := false; !over; {
			n, end, err := r.SweepGroups(c.t.Context(), part)
			check.OK(c.t, err)
			swept, over = swept+n, end
		}
	}
	check.Equal(t, "swept", swept, 3)
	left := c.index()
	for _, group := range []string{"stored", "may come", "unreadable"} {
		check.Equal(t, group, len(left[group]), 1)
	}
	check.Equal(t, "groups", len(left), 3)
}

// TestASweepFindsTasksThatMove: at their old shards and at their new ones.
func TestASweepFindsTasksThatMove(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	r := c.Router("orders")
	var ids []string
	for _, id := range strings.Split("abcdefghijklmnop", "") {
		m := inGroup("g", id)
		check.OK(c.t, r.Schedule(c.t.Context(), []shard.Entry{m})[0].Err)
		ids = append(ids, id)
	}
	c.begin(5)
	check.OK(c.t, r.Schedule(c.t.Context(), []shard.Entry{inGroup("g", "x"), inGroup("g", "y"), inGroup("g", "z")})[0].Err)
	later := c.now() + time.Hour.Milliseconds()
	for _, part := range c.Index() {
		page, err := part.Next(c.t.Context(), 500)
		check.OK(c.t, err)
		for _, m := range page {
			got := r.getMany(c.t.Context(), []string{m.ID}, c.FetchHeads)[0]
			check.OK(c.t, got.Err)
			check.Equal(t, "left "+m.ID, m.Left(&got.Task, later), false)
			check.Equal(t, "left without a task "+m.ID, m.Left(nil, later), true)
		}
	}
	check.Equal(t, "members", len(c.index()["g"]), len(ids)+3)
}

// TestAVersionIsStoredSoonOrNever: a shard refuses one that began long ago, because a sweep may
// have removed its member.
func TestAVersionIsStoredSoonOrNever(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	for ago, want := range map[time.Duration]error{4 * time.Minute: nil, 6 * time.Minute: shard.ErrLate} {
		e := inGroup("g", "a")
		shard.NewMark(c.now()-ago.Milliseconds()).Set("a", e.Body)
		put := shard.Put{Op: shard.NewOp(), Entries: []shard.Entry{e}}
		if err := c.Put(c.t.Context(), c.p, c.deadline(), []shard.Put{put})[0].Err; !errors.Is(err, want) {
			t.Errorf("began %s ago: %v", ago, err)
		}
		again := shard.Requeue{ID: "b", Op: shard.NewOp(), Due: 1, Attempt: 1, Next: 2, Attempts: 1, Scheduled: 1,
			Body: e.Body}
		if _, err := c.Shard(0).Requeue(c.t.Context(), c.p, c.deadline(), again, shard.Requeuing{}); !errors.Is(err, want) {
			t.Errorf("stored again, began %s ago: %v", ago, err)
		}
	}
}

// TestOnlyAGroupsTaskIsCancelled: a task that was replaced by one of another group stays, and
// is no cancelled version for consumers.
func TestOnlyAGroupsTaskIsCancelled(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{2, 7} { // 7: they move
		c := newSandbox(t, 2)
		r := c.Router("orders")
		ids := strings.Split("abcdefghijklmnop", "")
		for i, id := range ids {
			check.OK(c.t, r.Schedule(c.t.Context(), []shard.Entry{inGroup([]string{"g", "h", "", "g"}[i%4], id)})[0].Err)
		}
		if shards > 2 {
			c.begin(shards)
			for i, id := range ids { // the newer versions of some are at the new shards
				if i%4 == 3 {
					check.OK(c.t, r.Schedule(c.t.Context(), []shard.Entry{inGroup("h", id)})[0].Err)
				}
			}
		}
		for i, err := range r.CancelInGroup(c.t.Context(), ids, "g", task.DefaultMaxPayload) {
			mine := i%4 == 0 || i%4 == 3 && shards == 2
			if mine && err != nil || !mine && !errors.Is(err, task.ErrNotFound) {
				t.Errorf("%d shards: %s: %v", shards, ids[i], err)
			}
			_, err := r.Get(c.t.Context(), ids[i])
			if mine && !errors.Is(err, task.ErrNotFound) || !mine && err != nil {
				t.Errorf("%d shards: then %s: %v", shards, ids[i], err)
			}
			now := c.now()
			found, err := c.CheckDelivery(c.t.Context(), shard.Delivered{ID: ids[i], Due: now, Scheduled: now - 1000}, time.Hour)
			check.OK(c.t, err)
			check.Equal(t, ids[i]+" was cancelled", found == shard.Over, mine)
		}
	}
}

// TestAGroupsSecondRemovalSparesANewerVersion: a cancel removes twice. In between, the task may be
// scheduled outside the group, and begin to move. Its new shard must not take it for gone.
func TestAGroupsSecondRemovalSparesANewerVersion(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	r, ctx := c.Router("orders"), c.t.Context()
	ids := strings.Split("abcdefghijklmnop", "")
	for _, id := range ids {
		check.OK(c.t, r.Schedule(ctx, []shard.Entry{inGroup("g", id)})[0].Err)
	}
	cancel := cancelling{router: r, ids: ids, perScript: len(ids), group: "g", tasks: make([]cancelled, len(ids))}
	cancel.remove(ctx, upTo(len(ids)))
	cancel.noteCancels(ctx, cancel.meant(upTo(len(ids))))
	for _, id := range ids {
		check.OK(c.t, r.Schedule(ctx, []shard.Entry{inGroup("h", id)})[0].Err)
	}
	c.begin(7)
	_, err := r.refresh(ctx)
	check.OK(c.t, err)
	cancel.remove(ctx, cancel.meant(upTo(len(ids))))
	for i, id := range ids {
		check.OK(c.t, cancel.tasks[i].err)
		check.OK(c.t, r.RescheduleMany(ctx, []Move{{ID: id, When: task.In(time.Minute)}}, task.DefaultMaxPayload)[0].Err)
	}
}

// TestAConsumersRetryStaysInItsGroup, unless a newer version is in another.
func TestAConsumersRetryStaysInItsGroup(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	r := c.Router("orders")
	now := c.now()
	requeue := func() bool {
		t.Helper()
		stored, err := r.Requeue(c.t.Context(), shard.Requeue{ID: "a", Due: now, Attempt: 1, Next: now + 60_000, Attempts: 1,
			Scheduled: now, Body: inGroup("g", "a").Body})
		check.OK(c.t, err)
		return stored
	}
	check.Equal(t, "stored", requeue(), true)
	check.Equal(t, "members", len(c.index()["g"]), 1)
	page, err := r.Group("g").Next(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "tasks", len(page), 1)
	check.OK(c.t, r.Schedule(c.t.Context(), []shard.Entry{inGroup("h", "a")})[0].Err)
	check.Equal(t, "stored after a newer version", requeue(), false)
	page, err = r.Group("g").Next(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "tasks of the old group", len(page), 0)
}
