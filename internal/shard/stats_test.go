package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

func TestStatsCountsEveryStateExactly(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.Now(), "p1", "p2", "p3")
	for _, l := range leases(c.claimIDs("p1", "p2", "p3")) {
		c.release(Release{Lease: l, Park: true})
	}
	c.put(task.Now(), "l1", "l2")
	c.claimIDs("l1", "l2")
	c.put(task.Now(), "lapsed")
	c.sameIDs(c.claimFor(time.Millisecond), "lapsed")
	c.put(task.In(time.Hour), "w1", "w2", "w3", "w4")
	oldest := c.put(task.Now(), "b1", "b2", "b3", "b4", "b5")[0]
	var got Stats
	var before int64
	check.Until(t, "the lease ends", func() bool {
		before = c.now()
		stats, err := c.Stats(c.t.Context(), 2)
		check.OK(c.t, err)
		got = stats[0]
		check.Equal(t, "the other shard's pending", stats[1].Pending, 0)
		check.Equal(t, "the other shard's number", stats[1].Shard, 1)
		check.Equal(t, "the other shard has no oldest", stats[1].Oldest.IsZero(), true)
		return got.Leased == 2
	})
	check.Equal(t, "pending", got.Pending, 3+2+1+4+5)
	check.Equal(t, "backlog", got.Backlog, 1+5)
	check.Equal(t, "parked", got.Parked, 3)
	check.Equal(t, "oldest", got.Oldest.UnixMilli(), oldest)
	if now := c.now(); got.Now.UnixMilli() > now || got.Now.UnixMilli() < before {
		t.Errorf("now is %s", got.Now)
	}
}

// TestAWakeIsPublishedExactlyWhenATaskBecomesTheEarliest collects what a shard's
// channel tells during each step.
func TestAWakeIsPublishedExactlyWhenATaskBecomesTheEarliest(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	listen := c.rdb.SSubscribe(c.t.Context(), c.Shard(0).Wake())
	defer listen.Close()
	_, err := listen.Receive(c.t.Context())
	check.OK(t, err)
	heard := func() string {
		check.OK(c.t, c.rdb.SPublish(c.t.Context(), c.Shard(0).Wake(), "end").Err())
		var all []string
		for {
			m, err := listen.ReceiveMessage(c.t.Context())
			check.OK(c.t, err)
			if m.Payload == "end" {
				return strings.Join(all, " ")
			}
			all = append(all, m.Payload)
		}
	}
	wakes := func(step string, ms ...int64) {
		t.Helper()
		want := strings.Trim(fmt.Sprint(ms), "[]")
		check.Equal(t, "wakes after "+step, heard(), want)
	}
	reschedule := func(id string, when task.When) int64 {
		due, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: id, When: when})
		check.OK(c.t, err)
		return due
	}
	at := time.UnixMilli(c.now()).Add(time.Hour)
	wakes("the first put", c.put(task.At(at), "a")...)
	c.put(task.At(at), "b")
	c.put(task.At(at.Add(time.Second)), "c")
	wakes("puts at the same time and later")
	wakes("an earlier put", c.put(task.At(at.Add(-time.Second)), "d")...)
	due := slices.Min(c.put(task.At(at.Add(-time.Minute)), "e", "f"))
	wakes("one batch of several", due)
	reschedule("e", task.At(at.Add(time.Hour)))
	wakes("a later due time")
	wakes("an earlier due time", reschedule("c", task.At(at.Add(-30*time.Minute))))
	now := c.put(task.Now(), "now")[0]
	wakes("a put that is due", now)
	b := c.claimIDs("now")
	wakes("a claim")
	c.release(Release{Lease: leases(b)[0]})
	wakes("a release", now)
	b = c.claimIDs("now")
	c.release(Release{Lease: leases(b)[0], Delay: 2 * time.Hour})
	wakes("a release behind others")
	c.delete("now")
	c.put(task.Now(), "parked")
	heard()
	c.park("parked", "given up")
	wakes("parking")
	n, err := c.Shard(0).Replay(c.t.Context(), "parked")
	check.OK(c.t, err)
	check.Equal(t, "replayed", n, 1)
	wakes("a replay", c.read("parked").Next.UnixMilli())
	check.Equal(t, "settled", c.settle(leases(c.claimIDs("parked"))...), 1)
	c.delete("a")
	wakes("settling and deleting")
}

func TestAParkedTaskAloneDoesNotHideAWake(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "parked")
	c.park("parked", "given up")
	listen := c.rdb.SSubscribe(c.t.Context(), c.Shard(0).Wake())
	defer listen.Close()
	_, err := listen.Receive(c.t.Context())
	check.OK(t, err)
	due := c.put(task.In(time.Hour), "a")[0]
	m, err := listen.ReceiveMessage(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "wake", m.Payload, fmt.Sprint(due))
}
