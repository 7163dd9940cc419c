package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

func TestPutMakesATaskWaitUntilItIsDue(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	at := time.UnixMilli(c.now()).Add(time.Hour).UTC()
	due := c.put(task.At(at), "a")
	check.Equal(t, "due", due[0], at.UnixMilli())
	s := c.in("a", task.Waiting)
	check.Equal(t, "due", s.Due, at)
	check.Equal(t, "next", s.Next, at)
	check.Equal(t, "attempt", s.Attempt, 1)
	check.Equal(t, "payload", string(s.Payload), "payload of a")
}

func TestPutTakesThePastForNow(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	before := c.now()
	for _, when := range []task.When{task.At(time.Time{}), task.At(time.UnixMilli(before - 5000)), task.In(-time.Hour),
		task.Now()} {
		due := c.put(when, "a")[0]
		if after := c.now(); due < before || due > after {
			t.Errorf("when %s: due at %d, want between %d and %d", when, due, before, after)
		}
	}
}

func TestPutCountsARelativeTimeFromRedisClock(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	before := c.now()
	due := c.put(task.In(90*time.Second+999*time.Microsecond), "a")[0] - 90_000
	if after := c.now(); due < before || due > after {
		t.Errorf("due 90 s after %d, want between %d and %d", due, before, after)
	}
}

// TestPutTakesATimeHoweverItIsWritten: what the script takes for a whole number Redis
// takes for the same score.
func TestPutTakesATimeHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := c.now() + time.Hour.Milliseconds()
	for _, form := range []string{"%d", "%d ", " %d", "\t%d\n", "%d.", "%d.000", "%de0", "%d0e-1", "%#x", "%#x ",
		"000%d"} {
		when := fmt.Sprintf(form, due)
		args := []any{c.p.String(), string(NewOp()), c.notAfter(), "", "0", "", "0", "a", when, body("")}
		check.OK(c.t, c.eval("put", c.Shard(0).taskKeys(c.Shard(0).Wake()), args))
		s := c.in("a", task.Waiting)
		check.Equal(t, fmt.Sprintf("due of %q", when), s.Due.UnixMilli(), due)
		check.Equal(t, fmt.Sprintf("next of %q", when), s.Next.UnixMilli(), due)
	}
}

func TestPutTwiceWithOneOpChangesNothing(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	b := Put{Op: NewOp(), Entries: []Entry{entry("a", task.In(time.Hour)), entry("b", task.In(2*time.Hour))}}
	first := c.tryPut(c.p, b)
	check.OK(c.t, first.Err)
	b.Entries[0].Body = body("another")
	check.Until(t, "Redis's clock goes on", func() bool { return c.now() > first.Due[0]-time.Hour.Milliseconds() })
	second := c.tryPut(c.p, b)
	check.OK(c.t, second.Err)
	check.Equal(t, "due of a", second.Due[0], first.Due[0])
	check.Equal(t, "due of b", second.Due[1], first.Due[1])
	check.Equal(t, "payload", string(c.read("a").Payload), "payload of a")
}

func TestPutTwiceStoresAgainWhatWasDeliveredInBetween(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	b := Put{Op: NewOp(), Entries: []Entry{entry("a", task.Now()), entry("b", task.In(time.Hour))}}
	first := c.tryPut(c.p, b)
	check.Equal(t, "settled", c.settle(leases(c.claimIDs("a"))...), 1)
	second := c.tryPut(c.p, b)
	check.OK(c.t, second.Err)
	check.Equal(t, "due of b", second.Due[1], first.Due[1])
	c.in("a", task.Waiting)
}

func TestPutTwiceAnswersEvenUnderAnOlderPlacementOrTooLate(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	b := Put{Op: NewOp(), Entries: []Entry{entry("a", task.In(time.Hour))}}
	first := c.tryPut(c.p, b)
	old := c.begin(2)
	_, err := c.Shard(0).Fence(c.t.Context(), c.p)
	check.OK(c.t, err)
	second := c.Put(c.t.Context(), old, 1, []Put{b})[0]
	check.OK(c.t, second.Err)
	check.Equal(t, "due", second.Due[0], first.Due[0])
}

func TestPutReplacesATaskInWhateverState(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	b := c.claimIDs("a")
	c.release(Release{Lease: leases(b)[0], Attempted: true, Redelivered: true, Reason: "no route"})
	b = c.claimIDs("a")
	check.Equal(t, "attempt", b.Tasks[0].Attempt, 2)
	c.put(task.In(time.Hour), "a")
	s := c.in("a", task.Waiting)
	check.Equal(t, "attempt", s.Attempt, 1)
	check.Equal(t, "redelivered", s.Redelivered, false)
	check.Equal(t, "reason", s.Reason, "")
	check.Equal(t, "settled under the lease from before", c.settle(leases(b)...), 0)

	c.put(task.Now(), "a")
	c.park("a", "given up")
	c.put(task.Now(), "a")
	c.in("a", task.Waiting)
	c.claimIDs("a")
}

func TestPutIfAbsentRefusesWhatIsThereInWhateverState(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	absent := func(op Op, ids ...string) []int64 {
		b := Put{Op: op, Mode: Absent}
		for _, id := range ids {
			b.Entries = append(b.Entries, Entry{ID: id, When: task.In(time.Hour), Body: body("absent")})
		}
		r := c.tryPut(c.p, b)
		check.OK(c.t, r.Err)
		return r.Due
	}
	c.put(task.Now(), "parked")
	c.park("parked", "given up")
	c.put(task.Now(), "leased")
	c.claimIDs("leased")
	c.put(task.Now(), "waiting")
	op := NewOp()
	due := absent(op, "waiting", "new", "leased", "parked")
	for i, there := range []bool{true, false, true, true} {
		check.Equal(t, fmt.Sprintf("entry %d exists", i), due[i] == 0, there)
	}
	check.Equal(t, "payload", string(c.in("waiting", task.Waiting).Payload), "payload of waiting")
	c.in("leased", task.Leased)
	c.in("parked", task.Parked)
	check.Equal(t, "due the second time", absent(op, "waiting", "new", "leased", "parked")[1], due[1])
	check.Equal(t, "due under another op", absent(NewOp(), "new")[0], 0)
}

func TestOfTwoEntriesForOneIDTheLaterWinsUnlessAbsent(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	two := func(id string) []Entry {
		return []Entry{{ID: id, When: task.In(time.Hour), Body: body("first")}, {ID: id, When: task.In(2 * time.Hour),
			Body: body("second")}}
	}
	r := c.tryPut(c.p, Put{Entries: two("a")})
	check.OK(c.t, r.Err)
	check.Equal(t, "payload", string(c.read("a").Payload), "second")
	check.Equal(t, "due", c.read("a").Next.UnixMilli(), r.Due[1])
	r = c.tryPut(c.p, Put{Mode: Absent, Entries: two("b")})
	check.OK(c.t, r.Err)
	check.Equal(t, "payload", string(c.read("b").Payload), "first")
	check.Equal(t, "the second exists", r.Due[1], 0)
}

func TestWhatReachesRedisTooLateWritesNothing(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.In(time.Hour), "there")
	due := c.read("there").Next
	late := c.now() - 1
	both := []Entry{entry("a", task.Now()), entry("there", task.Now())}
	r := c.Put(c.t.Context(), c.p, late, []Put{{Op: NewOp(), Entries: both}})[0]
	if !errors.Is(r.Err, ErrLate) || !strings.Contains(r.Err.Error(), "shard 0 of topic orders") {
		t.Fatalf("put: got %v", r.Err)
	}
	if _, err := c.Delete(c.t.Context(), 0, c.p, late, true, "there"); !errors.Is(err, ErrLate) {
		t.Fatalf("delete: got %v", err)
	}
	move := Move{Op: NewOp(), ID: "there", When: task.Now()}
	if _, err := c.Shard(0).Reschedule(c.t.Context(), c.p, late, move); !errors.Is(err, ErrLate) {
		t.Fatalf("reschedule: got %v", err)
	}
	c.gone("a")
	check.Equal(t, "due", c.read("there").Next, due)
	check.Equal(t, "noted among the handled IDs", c.rdb.Exists(c.t.Context(), c.Shard(0).handled()).Val(), 0)
}

func TestDeleteRemovesATaskInWhateverState(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "parked")
	c.park("parked", "given up")
	c.put(task.Now(), "leased")
	b := c.claimIDs("leased")
	c.put(task.In(time.Hour), "waiting")
	there, err := c.Delete(c.t.Context(), 0, c.p, c.notAfter(), false, "waiting", "never", "leased", "parked")
	check.OK(c.t, err)
	check.Equal(t, "there", fmt.Sprint(there), fmt.Sprint([]bool{true, false, true, true}))
	for _, id := range []string{"waiting", "leased", "parked"} {
		c.gone(id)
		check.Equal(t, "there the second time", c.delete(id), false)
	}
	check.Equal(t, "settled", c.settle(leases(b)...), 0)
}

func TestRescheduleGivesANewDueTimeAndAFreshStart(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	scheduled := c.read("a").Scheduled
	c.park("a", "given up")
	m := Move{Op: NewOp(), ID: "a", When: task.In(time.Hour)}
	due, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), m)
	check.OK(c.t, err)
	s := c.in("a", task.Waiting)
	check.Equal(t, "due", s.Due.UnixMilli(), due)
	check.Equal(t, "next", s.Next.UnixMilli(), due)
	check.Equal(t, "attempt", s.Attempt, 1)
	check.Equal(t, "reason", s.Reason, "")
	check.Equal(t, "payload", string(s.Payload), "payload of a")
	check.Equal(t, "scheduled", s.Scheduled, scheduled)
	again, err := c.Shard(0).Reschedule(c.t.Context(), c.p, 1, m)
	check.OK(c.t, err)
	check.Equal(t, "due the second time", again, due)
}

func TestRescheduleTakesALeasedTaskFromItsClaim(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	b := c.claimIDs("a")
	_, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: "a", When: task.In(time.Hour)})
	check.OK(c.t, err)
	check.Equal(t, "settled", c.settle(leases(b)...), 0)
	check.Equal(t, "released", c.release(Release{Lease: leases(b)[0], Park: true}), 0)
	c.in("a", task.Waiting)
}

func TestRescheduleOfNothingIsNotFound(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	_, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: "a", When: task.Now()})
	if !errors.Is(err, task.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	c.gone("a")
}

func TestDueTimesKeepTheirMillisecondForAHundredYears(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	for _, at := range []time.Time{time.Now().AddDate(100, 0, 0), time.Now().Add(time.Hour)} {
		c.put(task.At(at), "a")
		s := c.read("a")
		check.Equal(t, "due", s.Due.UnixMilli(), at.UnixMilli())
		check.Equal(t, "next", s.Next.UnixMilli(), at.UnixMilli())
	}
}
