package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// life returns a task's events, each with its reason.
func (c *sandbox) life(id string) string {
	c.t.Helper()
	events, err := c.Events(c.t.Context(), id)
	check.OK(c.t, err)
	var all []string
	for _, e := range events {
		all = append(all, strings.TrimSpace(string(e.Kind)+" "+e.Reason))
	}
	return strings.Join(all, ", ")
}

// newWitness is a sandbox whose shards keep events.
func newWitness(t *testing.T) *sandbox {
	c := newSandbox(t, 1)
	check.OK(c.t, c.KeepEvents(c.t.Context(), c.p, time.Hour))
	return c
}

// TestEventsOfATask: a shard keeps what happens to its tasks, in order.
func TestEventsOfATask(t *testing.T) {
	t.Parallel()
	c := newWitness(t)
	later := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	c.put(task.At(later), "o-1")
	moved, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{ID: "o-1", Op: NewOp(), When: task.Now()})
	check.OK(c.t, err)
	b := c.claimIDs("o-1")
	check.Equal(t, "given back", c.release(Release{Lease: leases(b)[0], Attempted: true, Reason: "NO_ROUTE"}), 1)
	c.park("o-1", "max_attempts")
	_, err = c.Shard(0).Replay(c.t.Context(), "o-1")
	check.OK(c.t, err)
	b = c.claimIDs("o-1")
	check.Equal(t, "settled", c.settle(leases(b)...), 1)
	check.OK(c.t, c.Done(c.t.Context(), "o-1", moved, time.Hour))
	check.Equal(t, "events of o-1", c.life("o-1"),
		"scheduled, moved, retried NO_ROUTE, parked max_attempts, replayed, delivered, handled")

	events, err := c.Events(c.t.Context(), "o-1")
	check.OK(c.t, err)
	check.Equal(t, "due of the first", events[0].Due.UnixMilli(), later.UnixMilli())
	check.Equal(t, "due after the move", events[1].Due.UnixMilli(), moved)
	check.Equal(t, "due of the delivery", events[6].Due.UnixMilli(), moved)
	check.Equal(t, "no due", events[5].Due.IsZero(), true)
	check.Equal(t, "time of the first", time.Since(events[0].At) < time.Minute, true)

	c.put(task.Now(), "o-2")
	c.park("o-2", "why")
	_, err = c.Shard(0).PurgeParked(c.t.Context(), "o-2")
	check.OK(c.t, err)
	check.Equal(t, "events of o-2", c.life("o-2"), "scheduled, parked why, purged")

	c.put(task.In(time.Hour), "o-3")
	c.put(task.In(time.Hour), "o-3")
	c.delete("o-3")
	c.delete("o-3") // it isn't there any more
	check.Equal(t, "events of o-3", c.life("o-3"), "scheduled, scheduled, cancelled")
	check.Equal(t, "events of o-4", c.life("o-4"), "")
}

// TestEventsOfAConsumer: a consumer's retry and its parking are events.
func TestEventsOfAConsumer(t *testing.T) {
	t.Parallel()
	c := newWitness(t)
	due := c.put(task.Now(), "o-1")[0]
	c.settle(leases(c.claimIDs("o-1"))...)
	retry := Requeue{ID: "o-1", Op: NewOp(), Due: due, Attempt: 1, Next: due + 1, Attempts: 1, Scheduled: due,
		Reason: "no stock", Body: body("")}
	_, err := c.Shard(0).Requeue(c.t.Context(), c.p, c.notAfter(), retry, Requeuing{})
	check.OK(c.t, err)
	park := Requeue{ID: "o-1", Op: NewOp(), Due: due + 1, Attempt: 2, Park: true, Attempts: 2, Scheduled: due,
		Body: body("")}
	_, err = c.Shard(0).Requeue(c.t.Context(), c.p, c.notAfter(), park, Requeuing{})
	check.OK(c.t, err)
	check.Equal(t, "events of o-1", c.life("o-1"), "scheduled, delivered, retried no stock, parked")
}

// TestEventsAreKeptOnDemand: a shard keeps none by default and after KeepEvents of 0. Events
// that it kept stay for their time.
func TestEventsAreKeptOnDemand(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "o-1")
	check.Equal(t, "events of o-1", c.life("o-1"), "")
	check.OK(c.t, c.KeepEvents(c.t.Context(), c.p, time.Hour))
	before := c.now()
	c.put(task.In(time.Hour), "o-1")
	check.OK(c.t, c.KeepEvents(c.t.Context(), c.p, 0))
	c.put(task.In(time.Hour), "o-1")
	check.Equal(t, "events of o-1", c.life("o-1"), "scheduled")
	hour := func(ms int64) string { return fmt.Sprint(c.Shard(0).events(), ms/time.Hour.Milliseconds()) }
	left := max(c.rdb.PTTL(c.t.Context(), hour(before)).Val(), c.rdb.PTTL(c.t.Context(), hour(c.now())).Val())
	check.Equal(t, "expires", left > time.Hour && left <= 2*time.Hour, true)
}

// TestEventsAreBounded: of an ID that changes often, the last events stay. One call of many
// entries for one ID writes them all.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	c := newWitness(t)
	const most = 1024
	for n := range 100 {
		c.put(task.In(time.Duration(n+1)*time.Hour), "o-1", "o-2", "o-1")
	}
	events, err := c.Events(c.t.Context(), "o-1")
	check.OK(c.t, err)
	if n := len(events) * (1 + eventHead); n <= most/2 || n > most+2*(1+eventHead) {
		t.Errorf("%d events, of %d bytes", len(events), n)
	}
	last := events[len(events)-1].Due
	if ahead := time.Until(last); ahead < 99*time.Hour {
		t.Errorf("the last event has a task due in %v", ahead)
	}
}

// TestARepeatedCallAddsNoEvent: a script that is executed twice adds its events once.
func TestARepeatedCallAddsNoEvent(t *testing.T) {
	t.Parallel()
	c := newWitness(t)
	b := Put{Op: NewOp(), Entries: []Entry{entry("o-1", task.Now())}}
	check.OK(c.t, c.tryPut(c.p, b).Err)
	check.OK(c.t, c.tryPut(c.p, b).Err)
	l := leases(c.claimIDs("o-1"))
	c.settle(l...)
	c.settle(l...)
	check.Equal(t, "events of o-1", c.life("o-1"), "scheduled, delivered")
}

// TestEventsWithoutRights: a user that may not touch the events schedules all the same.
func TestEventsWithoutRights(t *testing.T) {
	t.Parallel()
	addr := servertest.OwnRedis(t).Addr()
	c := sandboxOn(t, servertest.RedisOptions(addr), "p", 1)
	check.OK(c.t, c.KeepEvents(c.t.Context(), c.p, time.Hour))
	for i, rules := range [][]any{{"resetkeys", "~p:[dtfhwp]*"}, {"-pexpire"}, {"-pttl"}} {
		user := fmt.Sprintf("earlier%d", i)
		all := append([]any{"ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all"}, rules...)
		check.OK(c.t, c.rdb.Do(c.t.Context(), all...).Err())
		options := servertest.RedisOptions(addr)
		options.Username, options.Password = user, "secret"
		other := sandboxOn(t, options, "p", 1)
		other.put(task.In(time.Hour), "o-1")
	}
	check.Equal(t, "events of o-1", c.life("o-1"), "")
}

// TestPlacesHaveEveryShardOfAnID: whatever the shard count was.
func TestPlacesHaveEveryShardOfAnID(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		id, shards := rapid.String().Draw(r, "id"), rapid.IntRange(1, MaxShards).Draw(r, "shards")
		if !slices.Contains(places(id), Place(id, shards)) {
			r.Errorf("%d shards: %d isn't among %v", shards, Place(id, shards), places(id))
		}
	})
}

// TestACopyThatGoesIsNoCancel: a task that moved to its new shard leaves no event behind.
func TestACopyThatGoesIsNoCancel(t *testing.T) {
	t.Parallel()
	c := newWitness(t)
	c.put(task.In(time.Hour), "o-1")
	check.OK(c.t, c.Topic.Delete(c.t.Context(), c.p, c.notAfter(), []Deletion{{Names: Names{0, []string{"o-1"}}}})[0])
	check.Equal(t, "events of o-1", c.life("o-1"), "scheduled")
}
