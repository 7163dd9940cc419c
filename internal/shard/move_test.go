package shard

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// export exports tasks of shard 0 under a request of its own.
func (c *sandbox) export(lease time.Duration, ids ...string) Exported {
	c.t.Helper()
	export, err := c.Shard(0).Export(c.t.Context(), c.p, Export{Claimant: "m", Request: string(NewOp()), Lease: lease,
		IDs: ids})
	check.OK(c.t, err)
	return export
}

// exportBefore exports a task that is due in a moment, before it is: tasks of other
// IDs until one is exported.
func (c *sandbox) exportBefore(in, lease time.Duration) (id string, due int64, export Exported) {
	c.t.Helper()
	check.Until(c.t, "a task is exported before it is due", func() bool {
		id = string(NewOp())
		due = c.put(task.In(in), id)[0]
		export = c.export(lease, id)
		before := len(export.Tasks) == 1 && export.Deadline-lease.Milliseconds() < due
		if !before {
			c.delete(id)
		}
		return before
	})
	return id, due, export
}

// import takes an export over into shard 1.
func (c *sandbox) importBatch(export Exported) int {
	c.t.Helper()
	a := c.Import(c.t.Context(), c.p, export.Deadline, Share{1, export.Tasks})[0]
	check.OK(c.t, a.Err)
	return a.Tasks
}

// at1 is a task of shard 1, which must be there.
func (c *sandbox) at1(id string) Stored {
	c.t.Helper()
	s, err := c.Shard(1).Read(c.t.Context(), c.p, id)
	check.OK(c.t, err)
	return s
}

func exportLeases(export Exported) []Lease {
	l := make([]Lease, len(export.Tasks))
	for i, exported := range export.Tasks {
		l[i] = Lease{ID: exported.ID, Token: export.Token}
	}
	return l
}

func TestATaskMovesWithAllItIs(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.Now(), "parked")
	c.park("parked", "no route")
	c.put(task.Now(), "tried")
	c.release(Release{Lease: leases(c.claimIDs("tried"))[0], Delay: time.Hour, Attempted: true, Redelivered: true,
		Reason: "nacked"})
	c.put(task.In(time.Hour), "waiting")
	ids := []string{"parked", "tried", "waiting"}
	before := map[string]Stored{}
	for _, id := range ids {
		before[id] = c.read(id)
	}
	export := c.export(time.Minute, ids...)
	check.Equal(t, "exported", len(export.Tasks), 3)
	for _, id := range ids {
		c.in(id, task.Leased)
	}
	check.Equal(t, "imported", c.importBatch(export), 3)
	check.Equal(t, "imported the second time", c.importBatch(export), 0)
	check.Equal(t, "settled", c.settle(exportLeases(export)...), 3)
	for _, id := range ids {
		c.gone(id)
		s, was := c.at1(id), before[id]
		check.Equal(t, "state of "+id, s.State, was.State)
		check.Equal(t, "next of "+id, s.Next, was.Next)
		check.Equal(t, "record of "+id, s.raw, was.raw)
	}
}

func TestAnExportAskedForAgainIsTheSame(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.In(time.Hour), "a", "b")
	l := Export{Claimant: "m", Request: "1", Lease: time.Minute, IDs: []string{"a", "b"}}
	first, err := c.Shard(0).Export(c.t.Context(), c.p, l)
	check.OK(c.t, err)
	second, err := c.Shard(0).Export(c.t.Context(), c.p, l)
	check.OK(c.t, err)
	check.Equal(t, "token", second.Token, first.Token)
	check.Equal(t, "deadline", second.Deadline, first.Deadline)
	check.Equal(t, "tasks", len(second.Tasks), 2)
	for i := range first.Tasks {
		check.Equal(t, "task", second.Tasks[i], first.Tasks[i])
	}
	check.Equal(t, "exported to another request", len(c.export(time.Minute, "a", "b").Tasks), 0)
}

func TestExportLeavesWhatIsLeasedMissingOrDueSoon(t *testing.T) {
	t.Parallel()
	check.Until(t, "an export is asked for within a second of a due time",
		func() bool { return exportsNotWhatIsDueSoon(newSandbox(t, 2)) })
}

// exportsNotWhatIsDueSoon reports whether what was due now still was when the export
// was asked for.
func exportsNotWhatIsDueSoon(c *sandbox) bool {
	t := c.t
	c.put(task.Now(), "leased")
	c.claimIDs("leased")
	c.put(task.In(time.Hour), "soon")
	c.put(task.Now(), "overdue")
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(0).due(), redis.Z{Score: float64(c.now() - 60_000),
		Member: "overdue"}).Err())
	c.put(task.In(3*time.Hour), "later")
	now := c.put(task.Now(), "now")[0]
	export, err := c.Shard(0).Export(c.t.Context(), c.p, Export{
		Claimant: "m", Request: "1", Lease: time.Minute, Soon: 2 * time.Hour,
		IDs: []string{"leased", "soon", "now", "nothing", "overdue", "later", "later"},
	})
	check.OK(c.t, err)
	if export.Deadline-time.Minute.Milliseconds() > now+time.Second.Milliseconds() {
		return false
	}
	check.Equal(t, "exported", len(export.Tasks), 2)
	check.Equal(t, "exported first", export.Tasks[0].ID, "overdue")
	check.Equal(t, "exported second", export.Tasks[1].ID, "later")
	if c.read("soon").State != task.Waiting || c.read("leased").State != task.Leased {
		t.Error("export touched what it left")
	}
	return true
}

func TestALapsedExportGoesBackToItsScoreFromBefore(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	due := c.put(task.In(time.Hour), "waiting")[0]
	c.put(task.Now(), "parked")
	c.park("parked", "no route")
	check.Equal(t, "exported", len(c.export(30*time.Millisecond, "waiting", "parked").Tasks), 2)
	check.Until(t, "the export lapses", func() bool {
		c.claimIDs()
		return c.read("waiting").State != task.Leased
	})
	check.Equal(t, "next", c.in("waiting", task.Waiting).Next.UnixMilli(), due)
	check.Equal(t, "may have been imported", c.read("waiting").Redelivered, true)
	c.in("parked", task.Parked)
	check.Equal(t, "next", c.claimIDs().Next.UnixMilli(), due)
}

func TestALapsedExportThatIsDueIsARedelivery(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	id, due, export := c.exportBefore(100*time.Millisecond, 200*time.Millisecond)
	var b Batch
	check.Until(t, "the task is claimed", func() bool { b = c.claim(); return len(b.Tasks) == 1 })
	if now := b.Now.UnixMilli(); now < due || now < export.Deadline {
		t.Fatalf("claimed at %d; due at %d, exported until %d", now, due, export.Deadline)
	}
	check.Equal(t, "redelivered", b.Tasks[0].Redelivered, true)
	check.Equal(t, "attempt", b.Tasks[0].Attempt, 1)
	check.Equal(t, "released", c.release(Release{Lease: leases(b)[0], Attempted: true}), 1)
	check.Equal(t, "attempt, no longer exported", c.read(id).Attempt, 2)
	err := c.Import(c.t.Context(), c.p, export.Deadline, Share{1, export.Tasks})[0].Err
	if !errors.Is(err, ErrLate) {
		t.Fatalf("imported past the deadline: %v", err)
	}
	check.Equal(t, "settled by the mover that slept", c.settle(exportLeases(export)...), 0)
}

func TestALapsedLeaseIsExportedWhileNobodyClaims(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.Now(), "parked")
	c.park("parked", "no route")
	c.put(task.Now(), "claimed")
	c.sameIDs(c.claimFor(30*time.Millisecond), "claimed")
	due := c.put(task.In(time.Hour), "exported")[0]
	check.Equal(t, "exported", len(c.export(30*time.Millisecond, "exported", "parked").Tasks), 2)
	for _, id := range []string{"exported", "parked", "claimed"} {
		var export Exported
		check.Until(t, id+" is exported", func() bool {
			export = c.export(time.Minute, id)
			return len(export.Tasks) == 1
		})
		check.Equal(t, "imported", c.importBatch(export), 1)
		check.Equal(t, "settled", c.settle(exportLeases(export)...), 1)
		check.Equal(t, id+" may have been delivered or imported", c.at1(id).Redelivered, true)
	}
	check.Equal(t, "next", c.at1("exported").Next.UnixMilli(), due)
	check.Equal(t, "state", c.at1("parked").State, task.Parked)
	check.Equal(t, "state", c.at1("claimed").State, task.Waiting)
}

func TestAnExportGivenBackIsAsItWas(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	due := c.put(task.In(time.Hour), "waiting")[0]
	c.put(task.Now(), "parked")
	c.park("parked", "no route")
	export := c.export(time.Minute, "waiting", "parked")
	for _, l := range exportLeases(export) {
		r := Release{Lease: l, Exported: true, Park: l.ID == "waiting", Attempted: true, Redelivered: true,
			Reason: "a mover's"}
		check.Equal(t, "released", c.release(r), 1)
		check.Equal(t, "released the second time", c.release(r), 0)
	}
	s := c.in("waiting", task.Waiting)
	check.Equal(t, "next", s.Next.UnixMilli(), due)
	check.Equal(t, "attempt", s.Attempt, 1)
	check.Equal(t, "redelivered", s.Redelivered, false)
	s = c.in("parked", task.Parked)
	check.Equal(t, "attempt", s.Attempt, 2)
	check.Equal(t, "reason", s.Reason, "no route")
}

func TestImportSkipsWhatIsOrWasHere(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.In(time.Hour), "cancelled", "replaced", "moving")
	c.begin(3)
	export := c.export(time.Minute, "cancelled", "replaced", "moving")
	_, err := c.Delete(c.t.Context(), 1, c.p, c.notAfter(), true, "cancelled")
	check.OK(c.t, err)
	check.OK(c.t, c.tryPut(c.p, Put{Shard: 1, Moving: true,
		Entries: []Entry{{ID: "replaced", When: task.In(2 * time.Hour), Body: body("newer")}}}).Err)
	check.Equal(t, "imported", c.importBatch(export), 1)
	check.Equal(t, "payload", string(c.at1("replaced").Payload), "newer")
	c.at1("moving")
	if _, err := c.Shard(1).Read(c.t.Context(), c.p, "cancelled"); !errors.Is(err, task.ErrNotFound) {
		t.Fatalf("a cancelled task came back: %v", err)
	}
	check.Equal(t, "settled, the skipped ones too", c.settle(exportLeases(export)...), 3)
}

func TestImportLeavesATaskThatIsHereWithoutTheHandledIDs(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.In(time.Hour), "a")
	check.OK(c.t, c.tryPut(c.p, Put{Shard: 1, Entries: []Entry{{ID: "a", When: task.In(2 * time.Hour),
		Body: body("here")}}}).Err)
	next := c.at1("a").Next
	check.Equal(t, "imported", c.importBatch(c.export(time.Minute, "a")), 0)
	check.Equal(t, "payload", string(c.at1("a").Payload), "here")
	check.Equal(t, "next", c.at1("a").Next, next)
}

func TestWhatWasDeliveredAfterItMovedIsNotImportedAgain(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	_, _, export := c.exportBefore(50*time.Millisecond, time.Minute)
	check.Equal(t, "imported", c.importBatch(export), 1)
	var b Batch
	check.Until(t, "the task is claimed at its new shard", func() bool {
		b = c.askAt(1, Claim{Claimant: "w", Request: string(NewOp()), Limit: 1, Lease: time.Minute})
		return len(b.Tasks) == 1
	})
	n, err := c.Shard(1).Settle(c.t.Context(), leases(b))
	check.OK(c.t, err)
	check.Equal(t, "settled", n, 1)
	check.Equal(t, "imported again", c.importBatch(export), 0)
	check.Equal(t, "pending", c.rdb.ZCard(c.t.Context(), c.Shard(1).due()).Val(), 0)
}

func TestARescheduledOrCancelledExportIsTakenFromItsMover(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.In(time.Hour), "a", "b")
	export := c.export(time.Minute, "a", "b")
	due, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: "a",
		When: task.In(2 * time.Hour)})
	check.OK(c.t, err)
	check.Equal(t, "cancelled", c.delete("b"), true)
	check.Equal(t, "settled", c.settle(exportLeases(export)...), 0)
	check.Equal(t, "next", c.in("a", task.Waiting).Next.UnixMilli(), due)
}

func TestScanMeetsEveryTaskInWhateverState(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "parked")
	c.park("parked", "no route")
	c.put(task.Now(), "leased")
	c.claimIDs("leased")
	want := map[string]bool{"parked": true, "leased": true}
	for range 5 {
		ids := make([]string, 200)
		for i := range ids {
			ids[i] = string(NewOp())
			want[ids[i]] = true
		}
		c.put(task.In(time.Hour), ids...)
	}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		ids, next, err := c.Shard(0).Scan(c.t.Context(), cursor, 100)
		check.OK(c.t, err)
		for _, id := range ids {
			delete(want, id)
		}
		cursor = next
	}
	check.Equal(t, "tasks the scan didn't meet", len(want), 0)
}

// A change that waits for one task of many doesn't look as if nothing were left.
func TestProgressShowsTheLastTask(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	var stay []string
	moves := ""
	for len(stay) < 500 || moves == "" {
		if id := string(NewOp()); Place(id, 2) == 0 {
			stay = append(stay, id)
		} else {
			moves = id
		}
	}
	c.put(task.In(time.Hour), stay[:progressSample]...)
	c.begin(2)
	misplaced := func() int64 {
		progress, err := c.Progress(c.t.Context(), c.p)
		check.OK(c.t, err)
		return progress.Misplaced
	}
	check.Equal(t, "misplaced of a few that stay", misplaced(), 0)
	c.put(task.In(time.Hour), append(stay[progressSample:], moves)...)
	for range 20 {
		if misplaced() == 0 {
			t.Fatal("nothing is misplaced, want at least one of many")
		}
	}
}

func TestAMoverWhoseAnswerWasLostIsTheMoverStill(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	try := func(claimant string, hold time.Duration) bool {
		mine, err := c.Shard(0).TryMove(c.t.Context(), claimant, hold)
		check.OK(c.t, err)
		return mine
	}
	for range 2 {
		check.Equal(t, "the first is the mover", try("a", time.Hour), true)
		check.Equal(t, "the second is", try("b", time.Hour), false)
	}
	check.OK(c.t, c.Shard(0).StopMove(c.t.Context(), "b"))
	check.Equal(t, "the second is, when it stopped", try("b", time.Hour), false)
	check.OK(c.t, c.Shard(0).StopMove(c.t.Context(), "a"))
	check.Equal(t, "the second is, when the first stopped", try("b", time.Hour), true)
}

// The reply to an import is lost, and its repeat arrives past the deadline.
func TestImportedAndLateIsNotGivenBack(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.put(task.In(time.Hour), "a", "b", "other")
	c.begin(3)
	export := c.export(time.Minute, "a", "b")
	more := c.export(time.Minute, "other")
	check.Equal(t, "imported", c.importBatch(export), 2)
	late := func(p Placement, tasks ...ExportedTask) error {
		return c.Import(c.t.Context(), p, c.now(), Share{1, tasks})[0].Err
	}
	check.OK(c.t, late(c.p, export.Tasks...))
	for what, err := range map[string]error{
		"another":          late(c.p, more.Tasks...),
		"one of them":      late(c.p, export.Tasks[0], more.Tasks[0]),
		"a newer change's": late(Placement{c.p.Epoch + 1, 3, 3, Stable}, export.Tasks...),
	} {
		if !errors.Is(err, ErrLate) {
			t.Errorf("%s: %v", what, err)
		}
	}
	check.Equal(t, "tasks", c.rdb.ZCard(c.t.Context(), c.Shard(1).due()).Val(), 2)
	_, err := c.Shard(1).Fence(c.t.Context(), c.p)
	check.OK(c.t, err)
	check.Equal(t, "settled", c.settle(exportLeases(export)...), 2)
}
