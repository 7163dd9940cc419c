package router

import (
	"fmt"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// delivered puts a task, claims it and settles it, and returns what its consumer
// has.
func (c *sandbox) delivered() shard.Requeue {
	c.t.Helper()
	const id = "a"
	c.put(task.Now(), id)
	b := c.claimIDs(id)
	_, err := c.Shard(0).Settle(c.t.Context(), []shard.Lease{{ID: id, Token: b.Tasks[0].Token}})
	check.OK(c.t, err)
	r := b.Tasks[0]
	return shard.Requeue{ID: id, Due: r.Due.UnixMilli(), Attempt: 1, Attempts: 1, Next: c.now() + 3600_000,
		Scheduled: r.Scheduled.UnixMilli(), Reason: "why", Body: body("again")}
}

func TestAgainStoresWhatWasSettled(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	a := c.delivered()
	stored, err := c.Router("orders").Requeue(c.t.Context(), a)
	check.OK(c.t, err)
	check.Equal(t, "stored", stored, true)
	r := c.read("a")
	check.Equal(t, "due", r.Due.UnixMilli(), a.Next)
	check.Equal(t, "scheduled", r.Scheduled.UnixMilli(), a.Scheduled)
	check.Equal(t, "attempt", r.Attempt, 2)
	check.Equal(t, "reason", r.Reason, "why")
	check.Equal(t, "payload", string(r.Payload), "again")
	check.Equal(t, "state", r.State, task.Waiting)
}

func TestAgainLeavesWhatWasStoredSinceTheDelivery(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *sandbox, a shard.Requeue){
		"put": func(c *sandbox, _ shard.Requeue) { c.put(task.In(time.Hour), "a") },
		"stored by its consumer": func(c *sandbox, a shard.Requeue) {
			_, err := c.Router("orders").Requeue(c.t.Context(), a)
			check.OK(c.t, err)
		},
		"replayed": func(c *sandbox, a shard.Requeue) {
			a.Park = true
			_, err := c.Router("orders").Requeue(c.t.Context(), a)
			check.OK(c.t, err)
			_, err = c.Shard(0).Replay(c.t.Context(), "a")
			check.OK(c.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			a := c.delivered()
			a.Attempt, a.Attempts = 2, 2
			change(c, a)
			before := c.read("a")
			stored, err := c.Router("orders").Requeue(c.t.Context(), a)
			check.OK(c.t, err)
			check.Equal(t, "stored", stored, false)
			check.Equal(t, "op", c.read("a").Op, before.Op)
		})
	}
}

func TestWithdrawTellsWhatWasThere(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "waiting")
	c.put(task.Now(), "leased")
	c.claimIDs("leased")
	before := c.now()
	ids := []string{"waiting", "never", "leased"}
	w := c.Withdraw(c.t.Context(), c.p, c.deadline(), []shard.Deletion{{Names: shard.Names{IDs: ids}}})[0]
	check.OK(c.t, w.Err)
	check.Equal(t, "what was there", fmt.Sprint(w.There), "[true false true]")
	if w.At < before || w.At > c.now() {
		t.Errorf("withdrawn at %d", w.At)
	}
}

func TestThePastTellsWhatIsDoneAndWhatIsOver(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	scheduled := int64(500)
	checkDelivery := func(due int64, want shard.Disposition) {
		t.Helper()
		got, err := c.CheckDelivery(c.t.Context(), shard.Delivered{ID: "a", Due: due, Scheduled: scheduled}, time.Hour)
		check.OK(c.t, err)
		check.Equal(t, "standing", got, want)
	}
	allowNext := func(due, next, want int64, allowed bool) {
		t.Helper()
		at, ok, err := c.AllowNext(c.t.Context(), shard.Delivered{ID: "a", Due: due, Scheduled: scheduled}, next, time.Hour)
		check.OK(c.t, err)
		check.Equal(t, "allowed", ok, allowed)
		check.Equal(t, "next", at, want)
	}
	checkDelivery(1000, shard.Run)
	allowNext(1000, 1000, 1001, true) // never the same due: it would be taken for done
	check.OK(c.t, c.Done(c.t.Context(), "a", 1000, time.Hour))
	checkDelivery(1000, shard.Done)
	checkDelivery(1001, shard.Run)
	allowNext(1001, 9000, 9000, true)
	check.OK(c.t, c.NoteCancelled(c.t.Context(), []string{"a"}, []int64{1600})[0].Err)
	allowNext(1001, 2000, 0, false)
	checkDelivery(9000, shard.Over) // it is the cancelled chain's
	scheduled = 1650
	checkDelivery(1700, shard.Run) // stored after the cancel
	allowNext(1700, 2000, 2000, true)
	checkDelivery(3000, shard.Run) // a newer one
	allowNext(1700, 2500, 0, false)
	checkDelivery(2000, shard.Over)
	scheduled = 1660
	checkDelivery(9000, shard.Run) // another version, due when the cancelled retry was to be
}

// TestAgainReplacesWhatFollowsAnOlderVersion: the retry of a version that was
// delivered late ends when a newer version has been handled. It must not prevent the retry
// of the newer version.
func TestAgainReplacesWhatFollowsAnOlderVersion(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(c *sandbox)
		stored bool
	}{
		"as it is": {func(*sandbox) {}, true},
		"claimed":  {func(c *sandbox) { c.claimIDs("a") }, true},
		"moved": {func(c *sandbox) {
			_, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.deadline(), shard.Move{Op: shard.NewOp(), ID: "a",
				When: task.In(2 * time.Hour)})
			check.OK(c.t, err)
		}, false},
		"put": {func(c *sandbox) { c.put(task.In(2*time.Hour), "a") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			older := c.delivered()
			check.Until(t, "the next millisecond", func() bool { return c.now() > older.Due })
			newer := c.delivered()
			check.Until(t, "the next millisecond", func() bool { return c.now() > newer.Due })
			older.Next, newer.Next = newer.Due+1, c.now()+60_000
			for _, a := range []shard.Requeue{older, newer} {
				_, ok, err := c.AllowNext(c.t.Context(), shard.Delivered{ID: a.ID, Due: a.Due, Scheduled: a.Scheduled}, a.Next,
					time.Hour)
				check.OK(c.t, err)
				check.Equal(t, "allowed", ok, true)
			}
			stored, err := c.Router("orders").Requeue(c.t.Context(), older)
			check.OK(c.t, err)
			check.Equal(t, "the older one's retry is stored", stored, true)
			row.change(c)
			stored, err = c.Router("orders").Requeue(c.t.Context(), newer)
			check.OK(c.t, err)
			check.Equal(t, "the newer one's retry is stored", stored, row.stored)
			if row.stored {
				check.Equal(t, "due", c.read("a").Due.UnixMilli(), newer.Next)
			}
		})
	}
}

// TestAgainOfAMovedTaskReplacesWhatWasScheduledLater: the producer moves the retry of a version, although
// it has replaced that version meanwhile. That makes it the newest, also if the version scheduled later
// has stored a retry.
func TestAgainOfAMovedTaskReplacesWhatWasScheduledLater(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	again := func(what string, a shard.Requeue) {
		t.Helper()
		of := shard.Delivered{ID: a.ID, Due: a.Due, Scheduled: a.Scheduled}
		_, ok, err := c.AllowNext(c.t.Context(), of, a.Next, time.Hour)
		check.OK(c.t, err)
		check.Equal(t, what+" is allowed", ok, true)
		stored, err := c.Router("orders").Requeue(c.t.Context(), a)
		check.OK(c.t, err)
		check.Equal(t, what+" is stored", stored, true)
	}
	first := c.delivered()
	check.Until(t, "the next millisecond", func() bool { return c.now() > first.Due })
	second := c.delivered()
	check.Until(t, "the next millisecond", func() bool { return c.now() > second.Due })
	again("the retry of the first version", first)
	_, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.deadline(), shard.Move{Op: shard.NewOp(), ID: "a",
		When: task.Now()})
	check.OK(c.t, err)
	b := c.claimIDs("a")
	_, err = c.Shard(0).Settle(c.t.Context(), leases(b))
	check.OK(c.t, err)
	moved := first
	moved.Due, moved.Scheduled = b.Tasks[0].Due.UnixMilli(), b.Tasks[0].Scheduled.UnixMilli()
	check.Equal(t, "when the moved task was scheduled", moved.Scheduled, first.Scheduled)
	again("the retry of the second version", second)
	moved.Next = second.Next + 1
	again("the retry of the moved task", moved)
	check.Equal(t, "due", c.read("a").Due.UnixMilli(), moved.Next)
}

// TestAgainLeavesANewerVersionThatIsDueBefore: while the shard count changes, the
// older version may be delivered from its old shard. It is due later than the version in
// the new shard.
func TestAgainLeavesANewerVersionThatIsDueBefore(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	a := c.delivered()
	check.Until(t, "the next millisecond", func() bool { return c.now() > a.Due })
	c.put(task.Now(), "a")
	a.Due = c.now() + 1000
	stored, err := c.Router("orders").Requeue(c.t.Context(), a)
	check.OK(c.t, err)
	check.Equal(t, "stored", stored, false)
	check.Equal(t, "payload", string(c.read("a").Payload), "payload of a")
}

// TestAgainWhileAnOlderVersionLiesInTheOldShard: while M changes, the producer
// of the newer version may have died before it removed the older one, which is due later.
// The older version doesn't count and is removed. A version that nothing replaced counts.
func TestAgainWhileAnOlderVersionLiesInTheOldShard(t *testing.T) {
	t.Parallel()
	for name, replaced := range map[string]bool{"replaced": true, "stored since": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			a := c.delivered()
			c.put(task.In(time.Hour), a.ID)
			c.begin(2)
			check.Equal(t, "its new shard", c.p.New(a.ID), 1)
			if replaced {
				// as a producer stores it that dies before it deletes at the old shard
				_, err := c.Shard(0).Fence(c.t.Context(), c.p)
				check.OK(c.t, err)
				check.OK(c.t, c.tryPut(c.p, shard.Put{Shard: 1, Moving: true, Entries: []shard.Entry{entry(a.ID, task.Now())}}).Err)
				b := c.askAt(1, shard.Claim{Claimant: "w", Request: string(shard.NewOp()), Limit: 1, Lease: time.Minute})
				c.sameIDs(b, a.ID)
				_, err = c.Shard(1).Settle(c.t.Context(), leases(b))
				check.OK(c.t, err)
				r := b.Tasks[0]
				a.Due, a.Scheduled, a.Next = r.Due.UnixMilli(), r.Scheduled.UnixMilli(), r.Due.UnixMilli()+60_000
			}
			stored, err := c.Router("orders").Requeue(c.t.Context(), a)
			check.OK(c.t, err)
			check.Equal(t, "stored", stored, replaced)
			if !replaced {
				check.Equal(t, "payload", string(c.read(a.ID).Payload), "payload of "+a.ID)
				return
			}
			c.gone(a.ID)
			s, err := c.Shard(1).Read(c.t.Context(), c.p, a.ID)
			check.OK(c.t, err)
			check.Equal(t, "due", s.Due.UnixMilli(), a.Next)
		})
	}
}
