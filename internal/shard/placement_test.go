package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// together runs a call 20 times at once and returns how many said that it was
// their doing.
func (c *sandbox) together(call func(ctx context.Context) (bool, error)) int {
	c.t.Helper()
	const callers = 20
	done, errs := make([]bool, callers), make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { done[i], errs[i] = call(c.ctx()) })
	}
	all.Wait()
	c.ok(errors.Join(errs...))
	n := 0
	for _, d := range done {
		if d {
			n++
		}
	}
	return n
}

func (c *sandbox) placed() Placement {
	c.t.Helper()
	p, err := c.Placement(c.ctx())
	c.ok(err)
	return p
}

func TestOnlyOneOfManyCallersChangesThePlacement(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 4)
	stable := Placement{1, 4, 4, Stable}
	equal(t, "at first", c.placed(), stable)
	n := c.together(func(ctx context.Context) (bool, error) { return c.Begin(ctx, stable, 5) })
	equal(t, "changes begun", n, 1)
	migrating := Placement{2, 5, 4, Migrating}
	equal(t, "after Begin", c.placed(), migrating)
	n = c.together(func(ctx context.Context) (bool, error) { return c.Begin(ctx, stable, 6) })
	equal(t, "changes begun from what was before", n, 0)
	n = c.together(func(ctx context.Context) (bool, error) { return c.Begin(ctx, migrating, 6) })
	equal(t, "changes begun during a change", n, 0)
	n = c.together(func(ctx context.Context) (bool, error) { return c.Finish(ctx, migrating) })
	equal(t, "changes finished", n, 1)
	after := Placement{3, 5, 5, Stable}
	equal(t, "after Finish", c.placed(), after)
	n = c.together(func(ctx context.Context) (bool, error) { return c.Remove(ctx, after) })
	equal(t, "removed", n, 1)
	if _, err := c.Placement(c.ctx()); !errors.Is(err, task.ErrUnknownTopic) || !strings.Contains(err.Error(), "orders") {
		t.Fatalf("placement of a removed topic: %v", err)
	}
}

func TestEnsureOfManyCallersMakesOnePlacement(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 4)
	ensure := func(name string) []Placement {
		var mu sync.Mutex
		var seen []Placement
		c.together(func(ctx context.Context) (bool, error) {
			p, err := c.store.Topic(name).Ensure(ctx, 2)
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, p)
			return false, err
		})
		return slices.Compact(seen)
	}
	seen := ensure("new")
	equal(t, "placements seen", fmt.Sprint(seen), fmt.Sprint([]Placement{{1, 2, 2, Stable}}))
	names, err := c.store.Topics(c.ctx())
	c.ok(err)
	equal(t, "topics", strings.Join(names, " "), "new orders")
	p, err := c.Ensure(c.ctx(), 9)
	c.ok(err)
	equal(t, "placement that was there", p, c.p)

	done, err := c.Remove(c.ctx(), c.p)
	c.ok(err)
	equal(t, "removed", done, true)
	c.ok(c.Forget(c.ctx(), c.p.Gone()))
	names, err = c.store.Topics(c.ctx())
	c.ok(err)
	equal(t, "topics after one was forgotten", strings.Join(names, " "), "new")
	seen = ensure("orders")
	equal(t, "placements after a removal", fmt.Sprint(seen),
		fmt.Sprint([]Placement{{c.p.Epoch + 2, 2, c.p.Shards, Migrating}}))
	_, err = c.Shard(0).Fence(c.ctx(), seen[0])
	c.ok(err)
}

func TestFinishShowsEveryShardTheStablePlacement(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 3)
	c.begin(1)
	for s := range 3 {
		_, err := c.Delete(c.ctx(), s, c.p, c.notAfter(), true, "noted")
		c.ok(err)
	}
	done, err := c.Finish(c.ctx(), c.p)
	c.ok(err)
	equal(t, "finished", done, true)
	for s := range 3 {
		var moved *MovedError
		if _, err := c.Shard(s).Fence(c.ctx(), c.p); !errors.As(err, &moved) || moved.Placement != c.placed() {
			t.Errorf("shard %d: got %v", s, err)
		}
		equal(t, "handled", c.rdb.SCard(c.ctx(), c.Shard(s).handled()).Val(), 0)
	}
}

func TestRemoveShutsEveryShard(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	done, err := c.Remove(c.ctx(), c.p)
	c.ok(err)
	equal(t, "removed", done, true)
	for s := range 2 {
		var moved *MovedError
		if _, err := c.Shard(s).Fence(c.ctx(), c.p); !errors.As(err, &moved) || moved.Placement.Phase != Removed {
			t.Errorf("shard %d: got %v", s, err)
		}
	}
}

func TestAnInterruptedRemovalIsFinishedByAnother(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 3)
	c.begin(1)
	gone := Placement{c.p.Epoch + 1, 1, 3, Removed}
	done, err := c.change(c.ctx(), c.p, gone) // the first step, and no fence knows it.
	c.ok(err)
	equal(t, "the removal began", done, true)
	found, err := c.Placement(c.ctx())
	if !errors.Is(err, task.ErrUnknownTopic) || found != gone {
		t.Fatalf("placement: got %v, %v", found, err)
	}
	for _, which := range []string{"the next", "one more"} {
		done, err = c.Remove(c.ctx(), found)
		c.ok(err)
		equal(t, which+" removed it", done, true)
	}
	for s := range 3 {
		var moved *MovedError
		err := c.tryPut(c.p, Put{Shard: s, Entries: []Entry{entry("a", task.Now())}}).Err
		if !errors.As(err, &moved) || moved.Placement != gone {
			t.Errorf("put to shard %d: %v", s, err)
		}
	}
}

func TestAShardCountOutOfRangeIsRefused(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	for _, shards := range []int{-1, 0, MaxShards + 1} {
		_, ensured := c.store.Topic("new").Ensure(c.ctx(), shards)
		done, begun := c.Begin(c.ctx(), c.p, shards)
		equal(t, fmt.Sprintf("a change to %d shards began", shards), done, false)
		for _, err := range []error{ensured, begun} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("1 to %d; got %d", MaxShards, shards)) {
				t.Errorf("%d shards: %v", shards, err)
			}
		}
	}
	equal(t, "placement", c.placed(), c.p)
	names, err := c.store.Topics(c.ctx())
	c.ok(err)
	equal(t, "topics", strings.Join(names, " "), "orders")
	_, err = c.store.Topic("new").Ensure(c.ctx(), 1)
	c.ok(err)
	c.begin(MaxShards)
	equal(t, "placement", c.p, Placement{2, MaxShards, 2, Migrating})
}

func TestAPrefixWithBracesIsRefused(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	for _, prefix := range []string{"{a}", "a{", "}a"} {
		if _, err := New(c.rdb, prefix); err == nil || !strings.Contains(err.Error(), prefix) {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
}

func TestRestorePutsAPlacementBackThatTheFencesHaveSeen(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(c *sandbox){
		"fell behind": func(*sandbox) {},
		"is gone":     func(c *sandbox) { c.ok(c.rdb.Del(c.ctx(), c.placementKey()).Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 2)
			seen := Placement{5, 3, 2, Migrating}
			lose(c)
			c.together(func(ctx context.Context) (bool, error) { return false, c.Restore(ctx, seen) })
			equal(t, "placement", c.placed(), seen)
			c.ok(c.Restore(c.ctx(), Placement{4, 2, 2, Stable}))
			equal(t, "placement after restoring an older one", c.placed(), seen)
		})
	}
}

// TestCleanShardsAreThoseOfTheirPlacement: a placement that is written back, with a
// script or without, has no shard's mark.
func TestCleanShardsAreThoseOfTheirPlacement(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	c.begin(3)
	for at := range 3 {
		_, err := c.MarkClean(c.ctx(), c.p, at)
		c.ok(err)
	}
	back := Placement{4, 2, 3, Migrating}
	c.ok(c.rdb.HSet(c.ctx(), c.placementKey(), "value", back.String()).Err())
	marks, err := c.Clean(c.ctx(), back)
	c.ok(err)
	equal(t, "clean", fmt.Sprint(marks), "[false false false]")
	left, err := c.MarkClean(c.ctx(), back, 1)
	c.ok(err)
	equal(t, "left", left, 2)
}

// TestOrphansAreTasksThatNobodyPolls counts tasks outside a placement's shards, and
// begins a change that polls their shards.
func TestOrphansAreTasksThatNobodyPolls(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 7)
	outside := 0
	for i := range 50 {
		id := fmt.Sprint("order-", i)
		at := c.p.New(id)
		c.ok(c.tryPut(c.p, Put{Shard: at, Entries: []Entry{entry(id, task.In(time.Hour))}}).Err)
		if at >= 3 {
			outside++
		}
	}
	orphans := func(p Placement) Orphans {
		s, err := c.Orphans(c.ctx(), p)
		c.ok(err)
		return s
	}
	equal(t, "orphans of 7 shards", orphans(c.p), Orphans{})
	lost := Placement{1, 3, 3, Stable}
	equal(t, "orphans of 3 shards", orphans(lost), Orphans{int64(outside), 7})
	equal(t, "orphans while all are polled", orphans(Placement{2, 3, 7, Migrating}), Orphans{})
	c.ok(c.rdb.ZAdd(c.ctx(), c.Shard(4095).due(), redis.Z{Score: 1, Member: "last"}).Err())
	equal(t, "an orphan of the last shard", orphans(c.p), Orphans{1, 4096})
	c.ok(c.rdb.Del(c.ctx(), c.Shard(4095).due()).Err())
	began, err := c.Gather(c.ctx(), c.p, Orphans{})
	c.ok(err)
	equal(t, "began with none", began, false)
	c.ok(c.rdb.HSet(c.ctx(), c.placementKey(), "value", "1 3 3 stable").Err())
	c.p = Placement{1, 7, 7, Stable}
	_, err = c.Shard(6).Fence(c.ctx(), Placement{5, 7, 3, Migrating})
	c.ok(err)
	began, err = c.Gather(c.ctx(), lost, orphans(lost))
	c.ok(err)
	equal(t, "began beside a placement that one of them has seen", began, false)
	equal(t, "put back", c.placed(), Placement{5, 7, 3, Migrating})
}

// TestOrphansAreCountedWithoutARight that users of earlier versions lack.
func TestOrphansAreCountedWithoutARight(t *testing.T) {
	t.Parallel()
	c := sandboxOn(t, servertest.RedisOptions(servertest.OwnRedis(t).Addr()), "p", 1)
	c.ok(c.rdb.ZAdd(c.ctx(), c.Shard(9).due(), redis.Z{Score: 1, Member: "orphan"}).Err())
	c.ok(c.rdb.Do(c.ctx(), "ACL", "SETUSER", "earlier", "on", ">secret", "~*", "&*", "+@all", "-exists").Err())
	options := *c.rdb.(*redis.Client).Options()
	options.Username, options.Password = "earlier", "secret"
	rdb := redis.NewClient(&options)
	defer rdb.Close()
	store, err := New(rdb, "p")
	c.ok(err)
	orphans, err := store.Topic(c.name).Orphans(c.ctx(), c.p)
	c.ok(err)
	equal(t, "orphans", orphans, Orphans{1, 10})
}

func TestAPlacementChangeExecutedTwiceKnowsItsOwnWork(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	wanted := Placement{2, 3, 2, Migrating}
	change := func(nonce string) bool {
		args := []any{c.p.String(), wanted.String(), nonce}
		reply := c.command(luascript.Call{Script: "cas_placement", Keys: []string{c.placementKey(), c.changes()}, Args: args})
		_ = c.rdb.Process(c.ctx(), reply)
		values, err := reply.Slice()
		c.ok(err)
		equal(t, "placement answered", values[1], any(wanted.String()))
		return values[0] == int64(1)
	}
	equal(t, "first", change("n1"), true)
	equal(t, "the same again", change("n1"), true)
	equal(t, "another's", change("n2"), false)
}

func TestAPlacementThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	for _, text := range []string{"", "5", "5 2 2 moving", "5 0 2 stable", "5 2 4097 stable", "x 2 2 stable"} {
		c.ok(c.rdb.HSet(c.ctx(), c.placementKey(), "value", text).Err())
		if p, err := c.Placement(c.ctx()); err == nil || errors.Is(err, task.ErrUnknownTopic) {
			t.Errorf("placement %q: got %v, %v", text, p, err)
		}
	}
}

func TestPlacementSaysWhichShardsToPollAndWhatIsSplit(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		p       Placement
		scanned int
		moving  bool
	}{
		{Placement{1, 4, 2, Stable}, 4, false},
		{Placement{2, 4, 2, Migrating}, 4, true},
		{Placement{2, 2, 4, Migrating}, 4, true},
		{Placement{2, 4, 4, Migrating}, 4, false},
		{Placement{3, 2, 4, Stable}, 2, false},
	} {
		equal(t, v.p.String()+": scanned", v.p.Scanned(), v.scanned)
		moving := 0
		for i := range 100 {
			id := fmt.Sprint("order-", i)
			if v.p.Moving(id) {
				moving++
				if v.p.Old(id) == v.p.New(id) {
					t.Errorf("%s: %s is moving and stays", v.p, id)
				}
			}
		}
		equal(t, v.p.String()+": some are moving", moving > 0, v.moving)
	}
}

func TestMarkCleanCountsDownTheShards(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 3)
	clean := func() string {
		marks, err := c.Clean(c.ctx(), c.p)
		c.ok(err)
		return fmt.Sprint(marks)
	}
	mark := func(p Placement, shard int) int {
		left, err := c.MarkClean(c.ctx(), p, shard)
		c.ok(err)
		return left
	}
	equal(t, "stable shards are clean", clean(), "[true true true]")
	old := c.begin(2)
	equal(t, "at first", clean(), "[false false false]")
	equal(t, "left", mark(c.p, 2), 2)
	equal(t, "left", mark(c.p, 2), 2)
	equal(t, "marked", clean(), "[false false true]")
	equal(t, "left under another placement", mark(old, 0), -1)
	equal(t, "left", mark(c.p, 0), 1)
	equal(t, "left", mark(c.p, 1), 0)
	equal(t, "marked", clean(), "[true true true]")
	done, err := c.Finish(c.ctx(), c.p)
	c.ok(err)
	equal(t, "finished", done, true)
	equal(t, "left after the end", mark(c.p, 1), -1)
	c.p = c.placed()
	c.begin(4)
	equal(t, "in the next change", clean(), "[false false false false]")
}

func TestTheLastGoodDocumentIsKept(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	doc, err := c.Document(c.ctx())
	c.ok(err)
	equal(t, "no document is nil", doc == nil, true)
	c.ok(c.SaveDocument(c.ctx(), []byte("shards: 4\n")))
	doc, err = c.Document(c.ctx())
	c.ok(err)
	equal(t, "document", string(doc), "shards: 4\n")
	c.ok(c.Forget(c.ctx(), c.p.Gone()))
	doc, err = c.Document(c.ctx())
	c.ok(err)
	equal(t, "document of a topic that is not removed", string(doc), "shards: 4\n")
	names, err := c.store.Topics(c.ctx())
	c.ok(err)
	equal(t, "topics", strings.Join(names, " "), "orders")
	done, err := c.Remove(c.ctx(), c.p)
	c.ok(err)
	equal(t, "removed", done, true)
	c.ok(c.Forget(c.ctx(), c.p.Gone()))
	doc, err = c.Document(c.ctx())
	c.ok(err)
	equal(t, "the forgotten topic's is nil", doc == nil, true)
}

// lostChange begins a change that a shard sees and the placement key forgets.
func (c *sandbox) lostChange(shards int) (lost Placement) {
	c.t.Helper()
	before := c.begin(shards)
	_, err := c.Shard(0).Fence(c.ctx(), c.p)
	c.ok(err)
	c.ok(c.rdb.HSet(c.ctx(), c.placementKey(), "value", before.String()).Err())
	lost, c.p = c.p, before
	return lost
}

func TestNoChangeBeginsBesideOneThatAShardHasSeen(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	lost := c.lostChange(3)
	done, err := c.Begin(c.ctx(), c.p, 4)
	c.ok(err)
	equal(t, "another change began", done, false)
	equal(t, "placement", c.placed(), lost)

	c.ok(c.rdb.Del(c.ctx(), c.placementKey()).Err())
	p, err := c.Ensure(c.ctx(), 5)
	c.ok(err)
	equal(t, "placement made where there is none", p, lost)
	equal(t, "placement", c.placed(), lost)
}

func TestTwoPlacementsOfOneEpochAreTold(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	lost := c.lostChange(3)
	c.ok(c.Forked(c.ctx(), c.p))
	other := Placement{lost.Epoch, 4, 2, Migrating}
	c.ok(c.rdb.HSet(c.ctx(), c.placementKey(), "value", other.String()).Err())
	for what, err := range map[string]error{"restore": c.Restore(c.ctx(), lost), "scan_pass": c.Forked(c.ctx(), other)} {
		if !errors.Is(err, task.ErrForked) || !strings.Contains(err.Error(), lost.String()) ||
			!strings.Contains(err.Error(), other.String()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	equal(t, "placement", c.placed(), other)
}

// TestTicketsFollowEachOther: however many are drawn at a time, none is drawn twice and
// none is left out.
func TestTicketsFollowEachOther(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 4)
	next := int64(1)
	for _, n := range []int{1, 66, 1, 3, MaxShards} {
		first, p, err := c.Draw(c.ctx(), n)
		c.ok(err)
		equal(t, "first ticket", first, next)
		equal(t, "placement", p, c.p)
		next += int64(n)
	}
}
