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
	"github.com/duefleet/duefleet/test/check"
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
		all.Go(func() { done[i], errs[i] = call(c.t.Context()) })
	}
	all.Wait()
	check.OK(c.t, errors.Join(errs...))
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
	p, err := c.Placement(c.t.Context())
	check.OK(c.t, err)
	return p
}

func TestOnlyOneOfManyCallersChangesThePlacement(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 4)
	stable := Placement{1, 4, 4, Stable}
	check.Equal(t, "at first", c.placed(), stable)
	n := c.together(func(ctx context.Context) (bool, error) { return c.Begin(ctx, stable, 5) })
	check.Equal(t, "changes begun", n, 1)
	migrating := Placement{2, 5, 4, Migrating}
	check.Equal(t, "after Begin", c.placed(), migrating)
	n = c.together(func(ctx context.Context) (bool, error) { return c.Begin(ctx, stable, 6) })
	check.Equal(t, "changes begun from what was before", n, 0)
	n = c.together(func(ctx context.Context) (bool, error) { return c.Begin(ctx, migrating, 6) })
	check.Equal(t, "changes begun during a change", n, 0)
	n = c.together(func(ctx context.Context) (bool, error) { return c.Finish(ctx, migrating) })
	check.Equal(t, "changes finished", n, 1)
	after := Placement{3, 5, 5, Stable}
	check.Equal(t, "after Finish", c.placed(), after)
	n = c.together(func(ctx context.Context) (bool, error) { return c.Remove(ctx, after) })
	check.Equal(t, "removed", n, 1)
	if _, err := c.Placement(c.t.Context()); !errors.Is(err, task.ErrUnknownTopic) || !strings.Contains(err.Error(),
		"orders") {
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
	check.Equal(t, "placements seen", fmt.Sprint(seen), fmt.Sprint([]Placement{{1, 2, 2, Stable}}))
	names, err := c.store.registry.Topics(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "topics", strings.Join(names, " "), "new orders")
	p, err := c.Ensure(c.t.Context(), 9)
	check.OK(c.t, err)
	check.Equal(t, "placement that was there", p, c.p)

	done, err := c.Remove(c.t.Context(), c.p)
	check.OK(c.t, err)
	check.Equal(t, "removed", done, true)
	check.OK(c.t, c.Forget(c.t.Context(), c.p.Gone()))
	names, err = c.store.registry.Topics(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "topics after one was forgotten", strings.Join(names, " "), "new")
	seen = ensure("orders")
	check.Equal(t, "placements after a removal", fmt.Sprint(seen),
		fmt.Sprint([]Placement{{c.p.Epoch + 2, 2, c.p.Shards, Migrating}}))
	_, err = c.Shard(0).Fence(c.t.Context(), seen[0])
	check.OK(c.t, err)
}

func TestFinishShowsEveryShardTheStablePlacement(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 3)
	c.begin(1)
	for s := range 3 {
		_, err := c.Delete(c.t.Context(), s, c.p, c.notAfter(), true, "noted")
		check.OK(c.t, err)
	}
	done, err := c.Finish(c.t.Context(), c.p)
	check.OK(c.t, err)
	check.Equal(t, "finished", done, true)
	for s := range 3 {
		var moved *MovedError
		if _, err := c.Shard(s).Fence(c.t.Context(), c.p); !errors.As(err, &moved) || moved.Placement != c.placed() {
			t.Errorf("shard %d: got %v", s, err)
		}
		check.Equal(t, "handled", c.rdb.SCard(c.t.Context(), c.Shard(s).handled()).Val(), 0)
	}
}

func TestRemoveShutsEveryShard(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	done, err := c.Remove(c.t.Context(), c.p)
	check.OK(c.t, err)
	check.Equal(t, "removed", done, true)
	for s := range 2 {
		var moved *MovedError
		if _, err := c.Shard(s).Fence(c.t.Context(), c.p); !errors.As(err, &moved) || moved.Placement.Phase != Removed {
			t.Errorf("shard %d: got %v", s, err)
		}
	}
}

func TestAnInterruptedRemovalIsFinishedByAnother(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 3)
	c.begin(1)
	gone := Placement{c.p.Epoch + 1, 1, 3, Removed}
	done, err := c.change(c.t.Context(), c.p, gone) // the first step, and no fence knows it.
	check.OK(c.t, err)
	check.Equal(t, "the removal began", done, true)
	found, err := c.Placement(c.t.Context())
	if !errors.Is(err, task.ErrUnknownTopic) || found != gone {
		t.Fatalf("placement: got %v, %v", found, err)
	}
	for _, which := range []string{"the next", "one more"} {
		done, err = c.Remove(c.t.Context(), found)
		check.OK(c.t, err)
		check.Equal(t, which+" removed it", done, true)
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
		_, ensured := c.store.Topic("new").Ensure(c.t.Context(), shards)
		done, begun := c.Begin(c.t.Context(), c.p, shards)
		check.Equal(t, fmt.Sprintf("a change to %d shards began", shards), done, false)
		for _, err := range []error{ensured, begun} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("1 to %d; got %d", MaxShards, shards)) {
				t.Errorf("%d shards: %v", shards, err)
			}
		}
	}
	check.Equal(t, "placement", c.placed(), c.p)
	names, err := c.store.registry.Topics(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "topics", strings.Join(names, " "), "orders")
	_, err = c.store.Topic("new").Ensure(c.t.Context(), 1)
	check.OK(c.t, err)
	c.begin(MaxShards)
	check.Equal(t, "placement", c.p, Placement{2, MaxShards, 2, Migrating})
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
		"is gone":     func(c *sandbox) { check.OK(c.t, c.rdb.Del(c.t.Context(), c.placementKey()).Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 2)
			seen := Placement{5, 3, 2, Migrating}
			lose(c)
			c.together(func(ctx context.Context) (bool, error) { return false, c.Restore(ctx, seen) })
			check.Equal(t, "placement", c.placed(), seen)
			check.OK(c.t, c.Restore(c.t.Context(), Placement{4, 2, 2, Stable}))
			check.Equal(t, "placement after restoring an older one", c.placed(), seen)
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
		_, err := c.MarkClean(c.t.Context(), c.p, at)
		check.OK(c.t, err)
	}
	back := Placement{4, 2, 3, Migrating}
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.placementKey(), "value", back.String()).Err())
	marks, err := c.Clean(c.t.Context(), back)
	check.OK(c.t, err)
	check.Equal(t, "clean", fmt.Sprint(marks), "[false false false]")
	left, err := c.MarkClean(c.t.Context(), back, 1)
	check.OK(c.t, err)
	check.Equal(t, "left", left, 2)
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
		check.OK(c.t, c.tryPut(c.p, Put{Shard: at, Entries: []Entry{entry(id, task.In(time.Hour))}}).Err)
		if at >= 3 {
			outside++
		}
	}
	orphans := func(p Placement) Orphans {
		s, err := c.Orphans(c.t.Context(), p)
		check.OK(c.t, err)
		return s
	}
	check.Equal(t, "orphans of 7 shards", orphans(c.p), Orphans{})
	lost := Placement{1, 3, 3, Stable}
	check.Equal(t, "orphans of 3 shards", orphans(lost), Orphans{int64(outside), 7})
	check.Equal(t, "orphans while all are polled", orphans(Placement{2, 3, 7, Migrating}), Orphans{})
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(4095).due(), redis.Z{Score: 1, Member: "last"}).Err())
	check.Equal(t, "an orphan of the last shard", orphans(c.p), Orphans{1, 4096})
	check.OK(c.t, c.rdb.Del(c.t.Context(), c.Shard(4095).due()).Err())
	began, err := c.Gather(c.t.Context(), c.p, Orphans{})
	check.OK(c.t, err)
	check.Equal(t, "began with none", began, false)
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.placementKey(), "value", "1 3 3 stable").Err())
	c.p = Placement{1, 7, 7, Stable}
	_, err = c.Shard(6).Fence(c.t.Context(), Placement{5, 7, 3, Migrating})
	check.OK(c.t, err)
	began, err = c.Gather(c.t.Context(), lost, orphans(lost))
	check.OK(c.t, err)
	check.Equal(t, "began beside a placement that one of them has seen", began, false)
	check.Equal(t, "put back", c.placed(), Placement{5, 7, 3, Migrating})
}

// TestOrphansAreCountedWithoutARight that users of earlier versions lack.
func TestOrphansAreCountedWithoutARight(t *testing.T) {
	t.Parallel()
	c := sandboxOn(t, servertest.RedisOptions(servertest.OwnRedis(t).Addr()), "p", 1)
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(9).due(), redis.Z{Score: 1, Member: "orphan"}).Err())
	check.OK(c.t, c.rdb.Do(c.t.Context(), "ACL", "SETUSER", "earlier", "on", ">secret", "~*", "&*", "+@all",
		"-exists").Err())
	options := *c.rdb.(*redis.Client).Options()
	options.Username, options.Password = "earlier", "secret"
	rdb := redis.NewClient(&options)
	defer rdb.Close()
	store, err := New(rdb, "p")
	check.OK(c.t, err)
	orphans, err := store.Topic(c.name).Orphans(c.t.Context(), c.p)
	check.OK(c.t, err)
	check.Equal(t, "orphans", orphans, Orphans{1, 10})
}

func TestAPlacementChangeExecutedTwiceKnowsItsOwnWork(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	wanted := Placement{2, 3, 2, Migrating}
	change := func(nonce string) bool {
		args := []any{c.p.String(), wanted.String(), nonce}
		reply := c.command(luascript.Call{Script: "cas_placement", Keys: []string{c.placementKey(), c.changes()}, Args: args})
		_ = c.rdb.Process(c.t.Context(), reply)
		values, err := reply.Slice()
		check.OK(c.t, err)
		check.Equal(t, "placement answered", values[1], any(wanted.String()))
		return values[0] == int64(1)
	}
	check.Equal(t, "first", change("n1"), true)
	check.Equal(t, "the same again", change("n1"), true)
	check.Equal(t, "another's", change("n2"), false)
}

func TestAPlacementThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	for _, text := range []string{"", "5", "5 2 2 moving", "5 0 2 stable", "5 2 4097 stable", "x 2 2 stable"} {
		check.OK(c.t, c.rdb.HSet(c.t.Context(), c.placementKey(), "value", text).Err())
		if p, err := c.Placement(c.t.Context()); err == nil || errors.Is(err, task.ErrUnknownTopic) {
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
		check.Equal(t, v.p.String()+": scanned", v.p.Scanned(), v.scanned)
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
		check.Equal(t, v.p.String()+": some are moving", moving > 0, v.moving)
	}
}

func TestMarkCleanCountsDownTheShards(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 3)
	clean := func() string {
		marks, err := c.Clean(c.t.Context(), c.p)
		check.OK(c.t, err)
		return fmt.Sprint(marks)
	}
	mark := func(p Placement, shard int) int {
		left, err := c.MarkClean(c.t.Context(), p, shard)
		check.OK(c.t, err)
		return left
	}
	check.Equal(t, "stable shards are clean", clean(), "[true true true]")
	old := c.begin(2)
	check.Equal(t, "at first", clean(), "[false false false]")
	check.Equal(t, "left", mark(c.p, 2), 2)
	check.Equal(t, "left", mark(c.p, 2), 2)
	check.Equal(t, "marked", clean(), "[false false true]")
	check.Equal(t, "left under another placement", mark(old, 0), -1)
	check.Equal(t, "left", mark(c.p, 0), 1)
	check.Equal(t, "left", mark(c.p, 1), 0)
	check.Equal(t, "marked", clean(), "[true true true]")
	done, err := c.Finish(c.t.Context(), c.p)
	check.OK(c.t, err)
	check.Equal(t, "finished", done, true)
	check.Equal(t, "left after the end", mark(c.p, 1), -1)
	c.p = c.placed()
	c.begin(4)
	check.Equal(t, "in the next change", clean(), "[false false false false]")
}

func TestTheLastGoodDocumentIsKept(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	doc, err := c.store.registry.Document(c.t.Context(), c.name)
	check.OK(c.t, err)
	check.Equal(t, "no document is nil", doc == nil, true)
	check.OK(c.t, c.store.registry.SaveDocument(c.t.Context(), c.name, []byte("shards: 4\n")))
	doc, err = c.store.registry.Document(c.t.Context(), c.name)
	check.OK(c.t, err)
	check.Equal(t, "document", string(doc), "shards: 4\n")
	check.OK(c.t, c.Forget(c.t.Context(), c.p.Gone()))
	doc, err = c.store.registry.Document(c.t.Context(), c.name)
	check.OK(c.t, err)
	check.Equal(t, "document of a topic that is not removed", string(doc), "shards: 4\n")
	names, err := c.store.registry.Topics(c.t.Context())
	check.OK(c.t, err)
	check.Equal(t, "topics", strings.Join(names, " "), "orders")
	done, err := c.Remove(c.t.Context(), c.p)
	check.OK(c.t, err)
	check.Equal(t, "removed", done, true)
	check.OK(c.t, c.Forget(c.t.Context(), c.p.Gone()))
	doc, err = c.store.registry.Document(c.t.Context(), c.name)
	check.OK(c.t, err)
	check.Equal(t, "the forgotten topic's is nil", doc == nil, true)
}

// lostChange begins a change that a shard sees and the placement key forgets.
func (c *sandbox) lostChange(shards int) (lost Placement) {
	c.t.Helper()
	before := c.begin(shards)
	_, err := c.Shard(0).Fence(c.t.Context(), c.p)
	check.OK(c.t, err)
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.placementKey(), "value", before.String()).Err())
	lost, c.p = c.p, before
	return lost
}

func TestNoChangeBeginsBesideOneThatAShardHasSeen(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	lost := c.lostChange(3)
	done, err := c.Begin(c.t.Context(), c.p, 4)
	check.OK(c.t, err)
	check.Equal(t, "another change began", done, false)
	check.Equal(t, "placement", c.placed(), lost)

	check.OK(c.t, c.rdb.Del(c.t.Context(), c.placementKey()).Err())
	p, err := c.Ensure(c.t.Context(), 5)
	check.OK(c.t, err)
	check.Equal(t, "placement made where there is none", p, lost)
	check.Equal(t, "placement", c.placed(), lost)
}

func TestTwoPlacementsOfOneEpochAreTold(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	lost := c.lostChange(3)
	check.OK(c.t, c.Forked(c.t.Context(), c.p))
	other := Placement{lost.Epoch, 4, 2, Migrating}
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.placementKey(), "value", other.String()).Err())
	for what, err := range map[string]error{"restore": c.Restore(c.t.Context(), lost),
		"scan_pass": c.Forked(c.t.Context(), other)} {
		if !errors.Is(err, task.ErrForked) || !strings.Contains(err.Error(), lost.String()) ||
			!strings.Contains(err.Error(), other.String()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	check.Equal(t, "placement", c.placed(), other)
}

// TestADrawTellsWhatOthersPoll, as long as they do.
func TestADrawTellsWhatOthersPoll(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 4)
	draw := func(instance string, n int, stay time.Duration) []Tickets {
		t.Helper()
		drawn, err := c.Draw(t.Context(), Draw{Instance: instance, N: n, Stay: stay})
		check.OK(t, err)
		for i, other := range drawn.Others {
			if left := other.Until.Sub(drawn.Now); left <= 0 || left > time.Hour {
				t.Errorf("%+v are polled for %s", other, left)
			}
			drawn.Others[i].Until = time.Time{}
		}
		return drawn.Others
	}
	draw("gone", 2, time.Millisecond)
	draw("a", 3, time.Hour)
	check.Until(t, "the end of the first", func() bool {
		return slices.Equal(draw("b", 1, time.Hour), []Tickets{{First: 3, N: 3}})
	})
	draw("b", 2, time.Hour)
	next, err := c.rdb.Get(t.Context(), c.ticketKey()).Int64()
	check.OK(t, err)
	next++
	check.Equal(t, "others", fmt.Sprint(draw("a", 1, time.Hour)), fmt.Sprint([]Tickets{{First: next - 2, N: 2}}))
	check.Equal(t, "others", fmt.Sprint(draw("c", 1, time.Hour)),
		fmt.Sprint([]Tickets{{First: next, N: 1}, {First: next - 2, N: 2}}))
	// Redis's clock was set back.
	check.OK(t, c.rdb.Set(t.Context(), c.drawnKey(), "1 4 99999999999999 1000 d", 0).Err())
	check.Equal(t, "others", len(draw("a", 1, time.Hour)), 0)
	if left := c.rdb.PTTL(t.Context(), c.drawnKey()).Val(); left <= 0 || left > time.Hour {
		t.Errorf("the key lasts %s", left)
	}
}

// TestADrawStaysLongerThanTheOthers, within its limit. Its own last draw doesn't count.
func TestADrawStaysLongerThanTheOthers(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 4)
	var first time.Time
	for _, step := range []struct {
		instance    string
		after, most time.Duration
		want        time.Duration // since the first draw
	}{
		{"a", time.Hour / 4, time.Hour, time.Hour / 10},
		{"b", time.Hour / 4, time.Hour, time.Hour * 35 / 100},
		{"c", time.Hour / 4, time.Hour, time.Hour * 60 / 100},
		{"a", time.Hour / 4, time.Hour, time.Hour * 85 / 100},
		{"b", time.Hour / 4, time.Hour, time.Hour},
		{"c", time.Hour / 4, time.Hour / 2, time.Hour / 2},
		{"c", 0, 0, time.Hour / 10},
		{"c", time.Second, time.Second, time.Hour / 10},
	} {
		drawn, err := c.Draw(t.Context(), Draw{Instance: step.instance, N: 4, Stay: time.Hour / 10, After: step.after,
			MostStay: step.most})
		check.OK(t, err)
		if first.IsZero() {
			first = drawn.Now
		}
		if off := drawn.Until.Sub(first) - step.want; off < -time.Second || off > time.Minute {
			t.Errorf("%+v: it stays %s too long", step, off)
		}
	}
}

// TestADrawLooksAtTheShardsOfItsTickets, unless the fleet polls another number of shards, or Redis
// refuses to look.
func TestADrawLooksAtTheShardsOfItsTickets(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 4)
	if !c.store.single() {
		t.Skip("a call can't have keys of several shards in a Redis Cluster")
	}
	later := task.Now()
	c.put(task.In(time.Hour), "a", "b", "c")
	c.put(later, "d")
	look := func(store *Store, scanned int) Drawn {
		t.Helper()
		got := make(chan Drawn, 1)
		convoy := store.NewConvoy()
		convoy.Draw(t.Context(), store.Topic("orders"), Draw{Instance: "here", N: 3, Scanned: scanned, Stay: time.Hour},
			func(d Drawn, err error) {
				check.OK(t, err)
				got <- d
			})
		convoy.Wait()
		return <-got
	}
	for range 4 {
		drawn := look(c.store, 4)
		want := c.Attention(t.Context(), int(drawn.First%4), int((drawn.First+1)%4), int((drawn.First+2)%4))
		check.Equal(t, "looks", len(drawn.Looked), 3)
		for i, a := range drawn.Looked {
			check.Equal(t, "next", a.Next, want[i].Next)
			check.Equal(t, "time of the look", a.Now, drawn.Now)
		}
	}
	check.Equal(t, "looks for another number of shards", len(look(c.store, 3).Looked), 0)
	check.Equal(t, "looks at too many shards", len(look(c.store, MaxShards).Looked), 0)
	check.OK(t, c.rdb.Set(t.Context(), c.Shard(2).due(), "no sorted set", 0).Err())
	for range 4 {
		check.Equal(t, "looks that Redis refuses in part", len(look(c.store, 4).Looked)%3, 0)
	}
}

// TestTicketsFollowEachOther: however many are drawn at a time, none is drawn twice and
// none is left out.
func TestTicketsFollowEachOther(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 4)
	next := int64(1)
	for _, n := range []int{1, 66, 1, 3, MaxShards} {
		drawn, err := c.Draw(c.t.Context(), Draw{Instance: "here", N: n})
		check.OK(c.t, err)
		check.Equal(t, "first ticket", drawn.First, next)
		check.Equal(t, "placement", drawn.Placement, c.p)
		next += int64(n)
	}
}
