package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

func TestClaimIsNeverEarly(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := c.put(task.In(150*time.Millisecond), "a")[0]
	var b Batch
	check.Until(t, "the task is claimed", func() bool {
		b = c.claim()
		if len(b.Tasks) == 0 {
			check.Equal(t, "next", b.Next.UnixMilli(), due)
			if b.Now.UnixMilli() >= due {
				t.Fatalf("not claimed at %d, and due at %d", b.Now.UnixMilli(), due)
			}
		}
		return len(b.Tasks) == 1
	})
	if b.Now.UnixMilli() < due {
		t.Fatalf("claimed at %d, and due at %d", b.Now.UnixMilli(), due)
	}
	c.sameIDs(b, "a")
}

func TestClaimOfAnEmptyShardHasNoNext(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	b := c.claimIDs()
	check.Equal(t, "next is zero", b.Next.IsZero(), true)
	c.put(task.Now(), "a")
	c.park("a", "given up")
	check.Equal(t, "next beside a parked task is zero", c.claimIDs().Next.IsZero(), true)
}

// TestAttentionIsWhatAClaimWouldAnswer: in every state of a shard, and it leases
// nothing.
func TestAttentionIsWhatAClaimWouldAnswer(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 3)
	attention := func() Attention {
		t.Helper()
		a := c.Attention(c.t.Context(), 0)[0]
		check.OK(c.t, a.Err)
		return a
	}
	same := func(what string) {
		t.Helper()
		check.Equal(t, what, attention().Next, c.ask(Claim{Claimant: "asks", Request: string(NewOp()),
			Lease: time.Minute}).Next)
	}
	same("an empty shard")
	c.put(task.Now(), "parked")
	c.park("parked", "given up")
	same("a parked task")
	check.Equal(t, "never", attention().Next.IsZero(), true)
	due := c.put(task.In(time.Hour), "later")[0]
	same("a waiting task")
	check.Equal(t, "when it is due", attention().Next.UnixMilli(), due)
	c.put(task.Now(), "now")
	if a := attention(); a.Next.After(a.Now) {
		t.Errorf("what is due needs attention at %s, and it is %s", a.Next, a.Now)
	}
	b := c.claimIDs("now")
	same("a leased task beside a waiting one")
	if a := attention(); a.Next.IsZero() || !a.Next.After(b.Now) || a.Next.UnixMilli() >= due {
		t.Errorf("a lease that runs out needs attention at %s", a.Next)
	}
}

// TestAClaimThatTakesTasksAnswersWhatALookSees: with no lease before, with leases that end
// sooner or later, and after one that ran out.
func TestAClaimThatTakesTasksAnswersWhatALookSees(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	look := func() Attention {
		t.Helper()
		a := c.Attention(c.t.Context(), 0)[0]
		check.OK(c.t, a.Err)
		return a
	}
	claims := func(lease time.Duration, tasks int) {
		t.Helper()
		id := string(NewOp())
		c.put(task.Now(), id)
		c.reach(id)
		b := c.claimFor(lease)
		check.Equal(t, "tasks", len(b.Tasks), tasks)
		check.Equal(t, "next with a lease of "+lease.String(), b.Next, look().Next)
	}
	for _, lease := range []time.Duration{2 * time.Hour, 3 * time.Hour, time.Hour, time.Millisecond} {
		claims(lease, 1)
	}
	check.Until(t, "the last lease has run out", func() bool { a := look(); return !a.Next.After(a.Now) })
	claims(4*time.Hour, 2)
}

// TestAttentionOfSeveralShards: in their order, and what is wrong with one is said of
// that one alone.
func TestAttentionOfSeveralShards(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 4)
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(3).due(), redis.Z{Score: 3000, Member: "a"}).Err())
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(1).due(), redis.Z{Score: 1000, Member: "a"}).Err())
	check.OK(c.t, c.rdb.Set(c.t.Context(), c.Shard(2).due(), "in the way", 0).Err())
	convoy := c.store.NewConvoy()
	together := make(chan []Attention, 1)
	convoy.Look(c.Topic, "", []int{3, 2, 1, 0}, func(all []Attention) { together <- all })
	for _, all := range [][]Attention{c.Attention(c.t.Context(), 3, 2, 1, 0), check.Receive(t, "a look", together)} {
		check.Equal(t, "results", len(all), 4)
		check.Equal(t, "shard 3", all[0].Next.UnixMilli(), 3000)
		if !Definite(all[1].Err) || !strings.Contains(all[1].Err.Error(), "shard 2") {
			t.Errorf("a key of the wrong type: %v", all[1].Err)
		}
		check.Equal(t, "shard 1", all[2].Next.UnixMilli(), 1000)
		check.Equal(t, "shard 0", all[3].Next.IsZero(), true)
		check.OK(c.t, errors.Join(all[0].Err, all[2].Err, all[3].Err))
	}
	convoy.Wait()
}

// TestAttentionOfManyShards: more than a call looks at.
func TestAttentionOfManyShards(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2*mostLooks+2)
	shards := upTo(c.p.Shards)
	for _, at := range shards {
		check.OK(t, c.rdb.ZAdd(t.Context(), c.Shard(at).due(), redis.Z{Score: float64(at), Member: "a"}).Err())
	}
	for at, a := range c.Attention(t.Context(), shards...) {
		check.OK(t, a.Err)
		check.Equal(t, "due time", a.Next.UnixMilli(), int64(at))
	}
}

func TestClaimBringsTheWholeTask(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	in := &task.Task{ContentType: "text/plain", Headers: map[string]string{"k": "v"}, Payload: []byte("\x00\xff")}
	r := c.tryPut(c.p, Put{Entries: []Entry{{ID: "a {b}\n🚀", When: task.Now(), Body: EncodeBody(in)}}})
	check.OK(c.t, r.Err)
	b := c.claimIDs("a {b}\n🚀")
	got := b.Tasks[0]
	check.Equal(t, "topic", got.Topic, "orders")
	check.Equal(t, "due", got.Due.UnixMilli(), r.Due[0])
	check.Equal(t, "scheduled", got.Scheduled.UnixMilli(), r.Due[0])
	check.Equal(t, "attempt", got.Attempt, 1)
	check.Equal(t, "redelivered", got.Redelivered, false)
	check.Equal(t, "content type", got.ContentType, "text/plain")
	check.Equal(t, "header", got.Headers["k"], "v")
	check.Equal(t, "payload", string(got.Payload), "\x00\xff")
	check.Equal(t, "state", c.read(got.ID).State, task.Leased)
}

func TestALeasedTaskIsNobodyElses(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	first := c.claimIDs("a")
	second := c.claimIDs()
	deadline := first.Now.Add(time.Minute).UnixMilli()
	if next := second.Next.UnixMilli(); next < deadline || next > deadline+1 {
		t.Fatalf("next at %d, want the end of the lease at %d", next, deadline)
	}
}

func TestARequestAskedAgainIsAnsweredWithItsBatch(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a", "b", "c")
	request := Claim{Claimant: "w", Request: "1", Limit: 10, Lease: time.Minute}
	first := c.ask(request)
	c.sameIDs(first, "a", "b", "c")
	c.put(task.Now(), "d")
	second := c.ask(request)
	c.sameIDs(second, "a", "b", "c")
	check.Equal(t, "token", second.Tasks[0].Token, first.Tasks[0].Token)
	check.Equal(t, "redelivered", second.Tasks[0].Redelivered, false)

	check.Equal(t, "settled", c.settle(leases(first)[0]), 1)
	third := c.ask(request)
	check.Equal(t, "what is left of the batch", len(third.Tasks), 2)
	check.Equal(t, "settled", c.settle(leases(third)...), 2)
	check.Equal(t, "what is left of the batch", len(c.ask(request).Tasks), 0)
	request.Request = "2"
	c.sameIDs(c.ask(request), "d")
}

func TestARequestThatIsAnothersBeginningIsNotTakenForIt(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	c.sameIDs(c.ask(Claim{Claimant: "w", Request: "1", Limit: 10, Lease: time.Minute}), "a")
	c.put(task.Now(), "b")
	c.sameIDs(c.ask(Claim{Claimant: "w", Request: "10", Limit: 10, Lease: time.Minute}), "b")
	c.put(task.Now(), "c")
	c.sameIDs(c.ask(Claim{Claimant: "v", Request: "1", Limit: 10, Lease: time.Minute}), "c")
}

// A copy of a claim that lay in a socket finds nobody who would forward what it
// leases.
func TestAClaimThatArrivesLateLeasesNothing(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	request := Claim{Claimant: "w", Request: "1", Limit: 10, Lease: time.Minute}
	_, err := c.Shard(0).claimBy(c.t.Context(), request, c.now()-1)
	check.Equal(t, "late", errors.Is(err, ErrLate), true)
	c.in("a", task.Waiting)
	first := c.ask(request)
	c.sameIDs(first, "a")
	again, err := c.Shard(0).claimBy(c.t.Context(), request, c.now()-1)
	check.OK(c.t, err)
	c.sameIDs(again, "a") // it is the answer to what was carried out in time
	check.Equal(t, "token", again.Tasks[0].Token, first.Tasks[0].Token)
}

func TestAClaimThatArrivesAfterTheNextOneLeasesNothing(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	next := Claim{Claimant: "w", Request: "10", Limit: 10, Lease: time.Minute}
	c.sameIDs(c.ask(next), "a")
	c.put(task.Now(), "b")
	older := next
	older.Request = "9"
	_, err := c.Shard(0).Claim(c.t.Context(), older)
	check.Equal(t, "refused", errors.Is(err, errOlder), true)
	c.in("b", task.Waiting)
	c.sameIDs(c.ask(next), "a") // and it is remembered
}

// Redis's clock was set, or another server took over: what is believed of it is
// corrected.
func TestAClaimUnderAWrongClockIsAskedAgain(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	c.scripts.AssumeTime(1)
	c.claimIDs("a")
}

func TestALapsedLeaseIsClaimedAgainAsARedelivery(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	request := Claim{Claimant: "w", Request: "1", Limit: 10, Lease: 30 * time.Millisecond}
	first := c.ask(request)
	c.sameIDs(first, "a")
	var second Batch
	check.Until(t, "the lease ends", func() bool {
		second = c.claim()
		return len(second.Tasks) == 1
	})
	if second.Now.Before(first.Now.Add(30 * time.Millisecond).Truncate(time.Millisecond)) {
		t.Fatalf("claimed at %s and again at %s, within the lease", first.Now, second.Now)
	}
	check.Equal(t, "redelivered", second.Tasks[0].Redelivered, true)
	check.Equal(t, "attempt", second.Tasks[0].Attempt, 1)
	check.Equal(t, "settled under the old token", c.settle(leases(first)...), 0)
	check.Equal(t, "released under the old token", c.release(Release{Lease: leases(first)[0]}), 0)
	check.Equal(t, "what the old request gets", len(c.ask(request).Tasks), 0)
	check.Equal(t, "settled", c.settle(leases(second)...), 1)
	c.gone("a")
}

func TestClaimKeepsItsLimitAndSaysThatThereIsMore(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := c.put(task.Now(), "a", "b", "c")
	claim := Claim{Claimant: "w", Request: "1", Limit: 2, Lease: time.Minute}
	b := c.ask(claim)
	check.Equal(t, "tasks", len(b.Tasks), 2)
	check.Equal(t, "next", b.Next.UnixMilli(), due[0])
	claim.Request, claim.Limit = "2", 0
	b = c.ask(claim)
	check.Equal(t, "tasks with a limit of 0", len(b.Tasks), 0)
	check.Equal(t, "next", b.Next.UnixMilli(), due[0])
	claim.Request, claim.Limit = "3", 1
	check.Equal(t, "tasks", len(c.ask(claim).Tasks), 1)
}

func TestTheEarliestTasksAreClaimedFirst(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	first := c.put(task.Now(), "z")[0]
	check.Until(t, "a millisecond passes", func() bool { return c.now() > first })
	c.put(task.Now(), "a")
	c.sameIDs(c.ask(Claim{Claimant: "w", Request: "1", Limit: 1, Lease: time.Minute}), "z")
}

func TestABatchIsCutWhereItsPayloadsExceedTheBudget(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	const n, size = 20, 64 << 10
	for i := range n {
		e := Entry{ID: fmt.Sprint(i), When: task.Now(), Body: body(strings.Repeat("x", size))}
		check.OK(c.t, c.tryPut(c.p, Put{Entries: []Entry{e}}).Err)
	}
	first := c.claim()
	if got := len(first.Tasks); got != claimBudget/size-1 {
		t.Fatalf("%d tasks of %d bytes in a batch of %d", got, size, claimBudget)
	}
	if first.Next.IsZero() || first.Next.After(first.Now) {
		t.Fatalf("next is %s, and there is more at %s", first.Next, first.Now)
	}
	rest := c.claim()
	check.Equal(t, "all tasks", len(first.Tasks)+len(rest.Tasks), n)
	check.Equal(t, "settled", c.settle(append(leases(first), leases(rest)...)...), n)
}

func TestAClaimMayBeGivenLess(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	const n, size = 20, 1 << 10
	var put Put
	for i := range n {
		put.Entries = append(put.Entries, Entry{ID: fmt.Sprint(i), When: task.Now(), Body: body(strings.Repeat("x", size))})
	}
	check.OK(c.t, c.tryPut(c.p, put).Err)
	b, err := c.Topic.Shard(0).Claim(t.Context(), Claim{Claimant: "w", Request: "1", Limit: n, Bytes: 6 * size,
		Lease: time.Hour})
	check.OK(c.t, err)
	check.Equal(t, "claimed", len(b.Tasks), 5)
}

func TestATaskAboveTheBudgetComesAlone(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	for _, id := range []string{"a", "b"} {
		large := Entry{ID: id, When: task.Now(), Body: body(strings.Repeat("x", claimBudget+1))}
		check.OK(c.t, c.tryPut(c.p, Put{Entries: []Entry{large}}).Err)
	}
	c.claimIDs("a")
	c.claimIDs("b")
}

func TestABatchOfTheMostTasksGoesThroughEveryScript(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	ids := make([]string, MaxBatch)
	for i := range ids {
		ids[i] = fmt.Sprintf("%04d", i)
	}
	check.Equal(t, "put", len(c.put(task.Now(), ids...)), MaxBatch)
	b := c.claimFor(50 * time.Millisecond)
	check.Equal(t, "claimed", len(b.Tasks), MaxBatch)
	check.Until(t, "the leases end", func() bool { b = c.claim(); return len(b.Tasks) > 0 })
	check.Equal(t, "claimed again", len(b.Tasks), MaxBatch)
	releases := make([]Release, len(b.Tasks))
	for i, l := range leases(b) {
		releases[i] = Release{Lease: l}
	}
	check.Equal(t, "released", c.release(releases...), MaxBatch)
	b = c.claim()
	check.Equal(t, "settled", c.settle(append(leases(b), leases(b)...)...), MaxBatch)
	check.Equal(t, "keys of tasks left", c.rdb.Exists(c.t.Context(), c.Shard(0).due(), c.Shard(0).tasks()).Val(), 0)
}

func TestALimitAboveTheMostIsCut(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	ids := make([]string, 2)
	for batch := range 2 {
		ids = ids[:0]
		for i := range 600 {
			ids = append(ids, fmt.Sprintf("%d-%d", batch, i))
		}
		c.put(task.Now(), ids...)
	}
	b := c.ask(Claim{Claimant: "w", Request: "1", Limit: 5000, Lease: time.Minute})
	check.Equal(t, "claimed", len(b.Tasks), MaxBatch)
}

func TestARecordOfANewerFormatIsLeftAloneForAMinute(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	now := c.now()
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.Shard(0).tasks(), "new", "\x50of the future").Err())
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(0).due(), redis.Z{Score: float64(now), Member: "new"}).Err())
	c.put(task.Now(), "a")
	b := c.claimIDs("a")
	check.Equal(t, "skipped", b.Skipped, 1)
	score, err := c.rdb.ZScore(c.t.Context(), c.Shard(0).due(), "new").Result()
	check.OK(c.t, err)
	if wait := int64(score) - b.Now.UnixMilli(); wait != 60_000 {
		t.Errorf("left alone for %d ms", wait)
	}
	raw, err := c.rdb.HGet(c.t.Context(), c.Shard(0).tasks(), "new").Result()
	check.OK(c.t, err)
	check.Equal(t, "record", raw, "\x50of the future")
	check.Equal(t, "skipped the next time", c.claimIDs().Skipped, 0)
}

func TestAMemberWithoutARecordIsParked(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(0).due(), redis.Z{Score: 1, Member: "waiting"},
		redis.Z{Score: -1, Member: "leased"}).Err())
	b := c.claimIDs()
	check.Equal(t, "skipped", b.Skipped, 2)
	stats, err := c.Stats(c.t.Context(), 1)
	check.OK(c.t, err)
	check.Equal(t, "parked", stats[0].Parked, 2)
	parked, err := c.Shard(0).Parked().Next(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "listed", len(parked), 2)
	if parked[0].Reason == "" {
		t.Error("no reason is given for a task without a record")
	}
	n, err := c.Shard(0).PurgeParked(c.t.Context(), "waiting", "leased")
	check.OK(c.t, err)
	check.Equal(t, "purged", n, 2)
}

func TestARecordThatCannotBeReadIsHandedBackAsBad(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.Shard(0).tasks(), "bad", "\x10cut").Err())
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(0).due(), redis.Z{Score: 1, Member: "bad"}).Err())
	c.put(task.Now(), "a")
	b := c.claimIDs("a")
	check.Equal(t, "bad records", len(b.Bad), 1)
	check.Equal(t, "bad ID", b.Bad[0].ID, "bad")
	check.Equal(t, "token", b.Bad[0].Token, b.Tasks[0].Token)
	if b.Bad[0].Err == nil {
		t.Error("no reason")
	}
	bad := Lease{ID: "bad", Token: b.Bad[0].Token}
	check.Equal(t, "parked", c.release(Release{Lease: bad, Park: true, Reason: "unreadable"}), 1)
}

// TestOneOfSeveralClaimantsClaims: the last claimant is the primary while it stays. The
// others get tasks that it leaves for longer than their grace. Then one of them is the
// primary.
func TestOneOfSeveralClaimantsClaims(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	claim := func(who string, grace time.Duration) Batch {
		t.Helper()
		return c.ask(Claim{Claimant: who, Request: string(NewOp()), Limit: 10, Lease: time.Minute, Stay: time.Hour,
			Grace: grace})
	}
	c.put(task.Now(), "a")
	first := claim("one", time.Hour)
	c.sameIDs(first, "a")
	check.Equal(t, "somebody else polls when nobody has before", first.Polled.IsZero(), true)

	due := c.put(task.Now(), "b")[0]
	other := claim("other", time.Hour)
	c.sameIDs(other)
	check.Equal(t, "hours that the one stays", other.Polled.Sub(first.Now).Round(time.Minute), time.Hour)
	check.Equal(t, "next for the other", other.Next.UnixMilli(), due)
	c.sameIDs(claim("one", time.Hour), "b")

	c.put(task.Now(), "c")
	check.Until(t, "what is left for longer than grace is claimed",
		func() bool { return len(claim("other", time.Millisecond).Tasks) == 1 })
	c.put(task.Now(), "d")
	check.Equal(t, "the one before gives way", claim("one", time.Hour).Polled.IsZero(), false)
	c.sameIDs(claim("other", time.Hour), "d")
}

// TestAClaimantThatLeftHoldsUpNobody: its stay is over.
func TestAClaimantThatLeftHoldsUpNobody(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	for i, who := range []string{"one", "other", "one"} {
		id := fmt.Sprint("task-", i)
		c.put(task.Now(), id)
		c.sameIDs(c.ask(Claim{Claimant: who, Request: string(NewOp()), Limit: 10, Lease: time.Minute, Stay: 0,
			Grace: time.Hour}), id)
	}
}
