package shard

import (
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
)

// checked are the calls that show a shard their placement, all on shard 0.
func checked() map[string]func(c *sandbox, p Placement) error {
	return map[string]func(c *sandbox, p Placement) error{
		"put": func(c *sandbox, p Placement) error {
			return c.tryPut(p, Put{Entries: []Entry{entry("put", task.Now())}}).Err
		},
		"put if absent": func(c *sandbox, p Placement) error {
			return c.tryPut(p, Put{Mode: Absent, Entries: []Entry{entry("absent", task.Now())}}).Err
		},
		"fence": func(c *sandbox, p Placement) error {
			_, err := c.Shard(0).Fence(c.ctx(), p, "there")
			return err
		},
		"delete": func(c *sandbox, p Placement) error {
			_, err := c.Delete(c.ctx(), 0, p, c.notAfter(), false, "there")
			return err
		},
		"reschedule": func(c *sandbox, p Placement) error {
			_, err := c.Shard(0).Reschedule(c.ctx(), p, c.notAfter(), Move{Op: NewOp(), ID: "there", When: task.Now()})
			return err
		},
		"export": func(c *sandbox, p Placement) error {
			_, err := c.Shard(0).Export(c.ctx(), p, Export{Claimant: "m", Request: "1", Lease: time.Minute,
				IDs: []string{"there"}})
			return err
		},
		"import": func(c *sandbox, p Placement) error {
			return c.Import(c.ctx(), p, c.now()+60_000, Share{0, []ExportedTask{{"imported", "1", head + "\x00"}}})[0].Err
		},
		"scan_pass": func(c *sandbox, p Placement) error {
			_, err := c.Shard(0).Pass(c.ctx(), p)
			return err
		},
	}
}

func TestTheFenceRefusesAnOlderPlacementAndNamesTheNewerOne(t *testing.T) {
	t.Parallel()
	calls := checked()
	calls["read"] = func(c *sandbox, p Placement) error {
		_, err := c.Shard(0).Read(c.ctx(), p, "there")
		return err
	}
	calls["fetch"] = func(c *sandbox, p Placement) error {
		return c.Fetch(c.ctx(), p, []Names{{0, []string{"there"}}})[0].Err
	}
	for name, do := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			due := c.put(task.In(time.Hour), "there")[0]
			old := c.begin(2)
			_, err := c.Shard(0).Fence(c.ctx(), c.p)
			c.ok(err)
			var moved *MovedError
			if err := do(c, old); !errors.As(err, &moved) {
				t.Fatalf("got %v, want a MovedError", err)
			}
			equal(t, "placement", moved.Placement, c.p)
			equal(t, "pending", c.rdb.ZCard(c.ctx(), c.Shard(0).due()).Val(), 1)
			equal(t, "due", c.in("there", task.Waiting).Next.UnixMilli(), due)
			equal(t, "handled", c.rdb.SCard(c.ctx(), c.Shard(0).handled()).Val(), 0)
		})
	}
}

func TestANewerPlacementLiftsTheFenceAndEmptiesTheHandledIDs(t *testing.T) {
	t.Parallel()
	for name, do := range checked() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			c.put(task.In(time.Hour), "there")
			c.begin(2)
			moving := Entry{ID: "moving", When: task.In(time.Hour), Body: body("")}
			c.ok(c.tryPut(c.p, Put{Moving: true, Entries: []Entry{moving}}).Err)
			equal(t, "noted among the handled IDs", c.noted("moving"), true)
			c.ok(do(c, c.p))
			equal(t, "noted under the same placement", c.noted("moving"), true)
			newer := Placement{c.p.Epoch + 1, 2, 2, Stable}
			c.ok(do(c, newer))
			equal(t, "noted under the newer one", c.noted("moving"), false)
			var moved *MovedError
			if _, err := c.Shard(0).Fence(c.ctx(), c.p); !errors.As(err, &moved) || moved.Placement != newer {
				t.Fatalf("got %v, want a MovedError to %v", err, newer)
			}
		})
	}
}

// noted reports whether an ID is among the handled IDs of shard 0.
func (c *sandbox) noted(id string) bool {
	c.t.Helper()
	is, err := c.rdb.SIsMember(c.ctx(), c.Shard(0).handled(), id).Result()
	c.ok(err)
	return is
}

func TestReadUnderANewerPlacementWritesNothing(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "there")
	newer := Placement{c.p.Epoch + 1, 2, 1, Migrating}
	_, err := c.Shard(0).Read(c.ctx(), newer, "there")
	c.ok(err)
	_, err = c.Shard(0).Fence(c.ctx(), c.p)
	c.ok(err)
}

func TestClaimSettleAndReleaseNeedNoPlacement(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a", "b")
	b := c.claimIDs("a", "b")
	c.begin(2)
	_, err := c.Shard(0).Fence(c.ctx(), c.p)
	c.ok(err)
	l := leases(b)
	equal(t, "settled", c.settle(l[0]), 1)
	equal(t, "released", c.release(Release{Lease: l[1]}), 1)
	c.claimIDs(l[1].ID)
}

func TestEpochsAreComparedAsNumbers(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	nine, ten := Placement{9, 1, 1, Stable}, Placement{10, 1, 1, Stable}
	for _, p := range []Placement{nine, ten} {
		_, err := c.Shard(0).Fence(c.ctx(), p)
		c.ok(err)
	}
	var moved *MovedError
	if _, err := c.Shard(0).Fence(c.ctx(), nine); !errors.As(err, &moved) || moved.Placement != ten {
		t.Fatalf("got %v, want a MovedError to %v", err, ten)
	}
}

func TestFenceReadsTasksUnderItsPlacement(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "a", "b")
	for range 2 {
		records, err := c.Shard(0).Fence(c.ctx(), c.p, "b", "nothing", "a")
		c.ok(err)
		equal(t, "records", len(records), 3)
		equal(t, "b", records[0].ID, "b")
		equal(t, "nothing is nil", records[1] == nil, true)
		equal(t, "payload of a", string(records[2].Payload), "payload of a")
	}
	equal(t, "in the fence after it was shown a placement", c.rdb.HGet(c.ctx(), c.Shard(0).fence(), "shown").Val(),
		c.p.String())
}

func TestPutNotesOnlyMovingTasksInTheHandledIDs(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.begin(2)
	c.ok(c.tryPut(c.p, Put{Moving: true, Entries: []Entry{entry("moving", task.Now())}}).Err)
	c.ok(c.tryPut(c.p, Put{Entries: []Entry{entry("stays", task.Now()), entry("there", task.Now())}}).Err)
	both := []Entry{entry("there", task.Now()), entry("new", task.Now())}
	c.ok(c.tryPut(c.p, Put{Moving: true, Mode: Absent, Entries: both}).Err)
	equal(t, "one that was to be absent, and was there, is noted", c.noted("there"), false)
	equal(t, "one that was to be absent, and was, is noted", c.noted("new"), true)
	equal(t, "moving is noted", c.noted("moving"), true)
	equal(t, "the other is noted", c.noted("stays"), false)
	_, err := c.Delete(c.ctx(), 0, c.p, c.notAfter(), true, "never")
	c.ok(err)
	equal(t, "a cancelled task is noted", c.noted("never"), true)
	_, err = c.Delete(c.ctx(), 0, c.p, c.notAfter(), false, "old")
	c.ok(err)
	equal(t, "one removed from its old shard is noted", c.noted("old"), false)
}

func TestRescheduleTakesTheFallbackUnlessItWasHereBefore(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.In(time.Hour), "a")
	c.begin(3)
	there, err := c.Shard(0).Fence(c.ctx(), c.p, "a")
	c.ok(err)
	m := Move{Op: NewOp(), ID: "a", When: task.In(2 * time.Hour), Moving: true, Fallback: there[0]}
	var due int64
	for i := range 2 {
		again, err := c.Shard(1).Reschedule(c.ctx(), c.p, c.notAfter(), m)
		c.ok(err)
		if i > 0 {
			equal(t, "due the second time", again, due)
		}
		due = again
	}
	s, err := c.Shard(1).Read(c.ctx(), c.p, "a")
	c.ok(err)
	equal(t, "due", s.Next.UnixMilli(), due)
	equal(t, "payload", string(s.Payload), "payload of a")
	equal(t, "noted", c.rdb.SIsMember(c.ctx(), c.Shard(1).handled(), "a").Val(), true)

	_, err = c.Delete(c.ctx(), 1, c.p, c.notAfter(), true, "a")
	c.ok(err)
	m.Op = NewOp()
	if _, err := c.Shard(1).Reschedule(c.ctx(), c.p, c.notAfter(), m); !errors.Is(err, task.ErrNotFound) {
		t.Fatalf("a cancelled task came back by its fallback: %v", err)
	}
}

func TestAnotherPlacementOfTheSameEpochIsRefusedAndTheHandledIDsKept(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.In(time.Hour), "a")
	c.begin(3)
	export := c.export(time.Minute, "a")
	equal(t, "cancelled", c.delete("a"), true)
	_, err := c.Delete(c.ctx(), 1, c.p, c.notAfter(), true, "a")
	c.ok(err)
	other := c.p
	other.Shards = 4
	_, fenced := c.Shard(1).Fence(c.ctx(), other)
	put := c.tryPut(other, Put{Shard: 1, Entries: []Entry{entry("b", task.Now())}}).Err
	_, read := c.Shard(1).Read(c.ctx(), other, "a")
	for _, err := range []error{fenced, put, read} {
		var moved *MovedError
		if !errors.As(err, &moved) || moved.Placement != c.p {
			t.Errorf("under another placement of epoch %d: %v", other.Epoch, err)
		}
	}
	equal(t, "imported what was cancelled", c.importBatch(export), 0)
	equal(t, "tasks", c.rdb.ZCard(c.ctx(), c.Shard(1).due()).Val(), 0)
}
