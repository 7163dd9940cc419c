package shard

import (
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
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
			_, err := c.Shard(0).Fence(c.t.Context(), p, "there")
			return err
		},
		"delete": func(c *sandbox, p Placement) error {
			_, err := c.Delete(c.t.Context(), 0, p, c.notAfter(), false, "there")
			return err
		},
		"reschedule": func(c *sandbox, p Placement) error {
			_, err := c.Shard(0).Reschedule(c.t.Context(), p, c.notAfter(), Move{Op: NewOp(), ID: "there", When: task.Now()})
			return err
		},
		"export": func(c *sandbox, p Placement) error {
			_, err := c.Shard(0).Export(c.t.Context(), p, Export{Claimant: "m", Request: "1", Lease: time.Minute,
				IDs: []string{"there"}})
			return err
		},
		"import": func(c *sandbox, p Placement) error {
			return c.Import(c.t.Context(), p, c.now()+60_000, Share{0, []ExportedTask{{"imported", "1", head + "\x00"}}})[0].Err
		},
		"scan_pass": func(c *sandbox, p Placement) error {
			_, err := c.Shard(0).Pass(c.t.Context(), p)
			return err
		},
	}
}

func TestTheFenceRefusesAnOlderPlacementAndNamesTheNewerOne(t *testing.T) {
	t.Parallel()
	calls := checked()
	calls["read"] = func(c *sandbox, p Placement) error {
		_, err := c.Shard(0).Read(c.t.Context(), p, "there")
		return err
	}
	calls["fetch"] = func(c *sandbox, p Placement) error {
		return c.Fetch(c.t.Context(), p, []Names{{0, []string{"there"}}})[0].Err
	}
	for name, do := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			due := c.put(task.In(time.Hour), "there")[0]
			old := c.begin(2)
			_, err := c.Shard(0).Fence(c.t.Context(), c.p)
			check.OK(c.t, err)
			var moved *MovedError
			if err := do(c, old); !errors.As(err, &moved) {
				t.Fatalf("got %v, want a MovedError", err)
			}
			check.Equal(t, "placement", moved.Placement, c.p)
			check.Equal(t, "pending", c.rdb.ZCard(c.t.Context(), c.Shard(0).due()).Val(), 1)
			check.Equal(t, "due", c.in("there", task.Waiting).Next.UnixMilli(), due)
			check.Equal(t, "handled", c.rdb.SCard(c.t.Context(), c.Shard(0).handled()).Val(), 0)
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
			check.OK(c.t, c.tryPut(c.p, Put{Moving: true, Entries: []Entry{moving}}).Err)
			check.Equal(t, "noted among the handled IDs", c.noted("moving"), true)
			check.OK(c.t, do(c, c.p))
			check.Equal(t, "noted under the same placement", c.noted("moving"), true)
			newer := Placement{c.p.Epoch + 1, 2, 2, Stable}
			check.OK(c.t, do(c, newer))
			check.Equal(t, "noted under the newer one", c.noted("moving"), false)
			var moved *MovedError
			if _, err := c.Shard(0).Fence(c.t.Context(), c.p); !errors.As(err, &moved) || moved.Placement != newer {
				t.Fatalf("got %v, want a MovedError to %v", err, newer)
			}
		})
	}
}

// noted reports whether an ID is among the handled IDs of shard 0.
func (c *sandbox) noted(id string) bool {
	c.t.Helper()
	is, err := c.rdb.SIsMember(c.t.Context(), c.Shard(0).handled(), id).Result()
	check.OK(c.t, err)
	return is
}

func TestReadUnderANewerPlacementWritesNothing(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "there")
	newer := Placement{c.p.Epoch + 1, 2, 1, Migrating}
	_, err := c.Shard(0).Read(c.t.Context(), newer, "there")
	check.OK(c.t, err)
	_, err = c.Shard(0).Fence(c.t.Context(), c.p)
	check.OK(c.t, err)
}

func TestClaimSettleAndReleaseNeedNoPlacement(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a", "b")
	b := c.claimIDs("a", "b")
	c.begin(2)
	_, err := c.Shard(0).Fence(c.t.Context(), c.p)
	check.OK(c.t, err)
	l := leases(b)
	check.Equal(t, "settled", c.settle(l[0]), 1)
	check.Equal(t, "released", c.release(Release{Lease: l[1]}), 1)
	c.claimIDs(l[1].ID)
}

func TestEpochsAreComparedAsNumbers(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	nine, ten := Placement{9, 1, 1, Stable}, Placement{10, 1, 1, Stable}
	for _, p := range []Placement{nine, ten} {
		_, err := c.Shard(0).Fence(c.t.Context(), p)
		check.OK(c.t, err)
	}
	var moved *MovedError
	if _, err := c.Shard(0).Fence(c.t.Context(), nine); !errors.As(err, &moved) || moved.Placement != ten {
		t.Fatalf("got %v, want a MovedError to %v", err, ten)
	}
}

func TestFenceReadsTasksUnderItsPlacement(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "a", "b")
	for range 2 {
		records, err := c.Shard(0).Fence(c.t.Context(), c.p, "b", "nothing", "a")
		check.OK(c.t, err)
		check.Equal(t, "records", len(records), 3)
		check.Equal(t, "b", records[0].ID, "b")
		check.Equal(t, "nothing is nil", records[1] == nil, true)
		check.Equal(t, "payload of a", string(records[2].Payload), "payload of a")
	}
	check.Equal(t, "in the fence after it was shown a placement", c.rdb.HGet(c.t.Context(), c.Shard(0).fence(),
		"shown").Val(),
		c.p.String())
}

func TestPutNotesOnlyMovingTasksInTheHandledIDs(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.begin(2)
	check.OK(c.t, c.tryPut(c.p, Put{Moving: true, Entries: []Entry{entry("moving", task.Now())}}).Err)
	check.OK(c.t, c.tryPut(c.p, Put{Entries: []Entry{entry("stays", task.Now()), entry("there", task.Now())}}).Err)
	both := []Entry{entry("there", task.Now()), entry("new", task.Now())}
	check.OK(c.t, c.tryPut(c.p, Put{Moving: true, Mode: Absent, Entries: both}).Err)
	check.Equal(t, "one that was to be absent, and was there, is noted", c.noted("there"), false)
	check.Equal(t, "one that was to be absent, and was, is noted", c.noted("new"), true)
	check.Equal(t, "moving is noted", c.noted("moving"), true)
	check.Equal(t, "the other is noted", c.noted("stays"), false)
	_, err := c.Delete(c.t.Context(), 0, c.p, c.notAfter(), true, "never")
	check.OK(c.t, err)
	check.Equal(t, "a cancelled task is noted", c.noted("never"), true)
	_, err = c.Delete(c.t.Context(), 0, c.p, c.notAfter(), false, "old")
	check.OK(c.t, err)
	check.Equal(t, "one removed from its old shard is noted", c.noted("old"), false)
}

func TestRescheduleTakesTheFallbackUnlessItWasHereBefore(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.In(time.Hour), "a")
	c.begin(3)
	there, err := c.Shard(0).Fence(c.t.Context(), c.p, "a")
	check.OK(c.t, err)
	m := Move{Op: NewOp(), ID: "a", When: task.In(2 * time.Hour), Moving: true, Fallback: there[0]}
	var due int64
	for i := range 2 {
		again, err := c.Shard(1).Reschedule(c.t.Context(), c.p, c.notAfter(), m)
		check.OK(c.t, err)
		if i > 0 {
			check.Equal(t, "due the second time", again, due)
		}
		due = again
	}
	s, err := c.Shard(1).Read(c.t.Context(), c.p, "a")
	check.OK(c.t, err)
	check.Equal(t, "due", s.Next.UnixMilli(), due)
	check.Equal(t, "payload", string(s.Payload), "payload of a")
	check.Equal(t, "noted", c.rdb.SIsMember(c.t.Context(), c.Shard(1).handled(), "a").Val(), true)

	_, err = c.Delete(c.t.Context(), 1, c.p, c.notAfter(), true, "a")
	check.OK(c.t, err)
	m.Op = NewOp()
	if _, err := c.Shard(1).Reschedule(c.t.Context(), c.p, c.notAfter(), m); !errors.Is(err, task.ErrNotFound) {
		t.Fatalf("a cancelled task came back by its fallback: %v", err)
	}
}

func TestAnotherPlacementOfTheSameEpochIsRefusedAndTheHandledIDsKept(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.In(time.Hour), "a")
	c.begin(3)
	export := c.export(time.Minute, "a")
	check.Equal(t, "cancelled", c.delete("a"), true)
	_, err := c.Delete(c.t.Context(), 1, c.p, c.notAfter(), true, "a")
	check.OK(c.t, err)
	other := c.p
	other.Shards = 4
	_, fenced := c.Shard(1).Fence(c.t.Context(), other)
	put := c.tryPut(other, Put{Shard: 1, Entries: []Entry{entry("b", task.Now())}}).Err
	_, read := c.Shard(1).Read(c.t.Context(), other, "a")
	for _, err := range []error{fenced, put, read} {
		var moved *MovedError
		if !errors.As(err, &moved) || moved.Placement != c.p {
			t.Errorf("under another placement of epoch %d: %v", other.Epoch, err)
		}
	}
	check.Equal(t, "imported what was cancelled", c.importBatch(export), 0)
	check.Equal(t, "tasks", c.rdb.ZCard(c.t.Context(), c.Shard(1).due()).Val(), 0)
}
