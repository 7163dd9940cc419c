package shard

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestAPassThroughACleanShardProvesIt(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	at := c.pass()
	check.Equal(t, "at first", disposition(at), Pass{Count: 1, Cursor: 0, Clean: false})
	at = c.step(at, 17, false)
	check.Equal(t, "after a step", disposition(at), Pass{Count: 1, Cursor: 17, Clean: false})
	check.Equal(t, "for another mover", c.pass(), at)
	end := c.step(at, 0, false)
	check.Equal(t, "at the end", disposition(end), Pass{Count: 2, Cursor: 0, Clean: true})
	check.Equal(t, "asked again", disposition(c.pass()), Pass{Count: 2, Cursor: 0, Clean: false})
}

func TestAPassThatMetSomethingProvesNothing(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	at := c.step(c.pass(), 17, true)
	at = c.step(at, 5, false)
	end := c.step(at, 0, false)
	check.Equal(t, "at the end", disposition(end), Pass{Count: 2, Cursor: 0, Clean: false})
	check.Equal(t, "the next, of one step", disposition(c.step(end, 0, false)), Pass{Count: 3, Cursor: 0, Clean: true})
	check.Equal(t, "one that met something at its end", disposition(c.step(c.pass(), 0, true)),
		Pass{Count: 4, Cursor: 0, Clean: false})
}

func TestAStepTakenTwiceAdvancesOnce(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	start := c.pass()
	at := c.step(start, 17, false)
	check.Equal(t, "the second time", c.step(start, 17, false), at)
	check.Equal(t, "a slower mover's", c.step(start, 99, true), at)
	end := c.step(at, 0, false)
	check.Equal(t, "clean", end.Clean, true)
	check.Equal(t, "the second time", disposition(c.step(at, 0, false)), Pass{Count: 2, Cursor: 0, Clean: false})
	check.Equal(t, "of the pass before", disposition(c.step(start, 0, false)), Pass{Count: 2, Cursor: 0, Clean: false})
}

func TestANewPlacementBeginsAPassOfItsOwn(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	at := c.step(c.pass(), 17, true)
	c.begin(2)
	check.Equal(t, "under the new placement", disposition(c.pass()), Pass{Count: 1, Cursor: 0, Clean: false})
	check.Equal(t, "a step from before", disposition(c.step(at, 30, true)), Pass{Count: 1, Cursor: 0, Clean: false})
}

func TestCursorsOf64BitsArePassedOnWhole(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	const far = 1<<63 + 12345
	check.Equal(t, "cursor", c.step(c.pass(), far, false).Cursor, far)
	check.Equal(t, "cursor", c.pass().Cursor, far)
}

// moveOut moves what is in shard 1 to shard 0 until a pass proves shard 1 clean,
// and tells seen of each step.
func (c *sandbox) moveOut(seen func(at Pass)) {
	c.t.Helper()
	at, err := c.Shard(1).Pass(c.t.Context(), c.p)
	check.OK(c.t, err)
	for steps := 0; !at.Clean; steps++ {
		if steps == 1000 {
			c.t.Fatalf("not clean after %d steps of %d passes", steps, at.Count)
		}
		ids, next, err := c.Shard(1).Scan(c.t.Context(), at.Cursor, 100)
		check.OK(c.t, err)
		request := Export{Claimant: "m", Request: string(NewOp()), Lease: time.Minute, IDs: ids}
		export, err := c.Shard(1).Export(c.t.Context(), c.p, request)
		check.OK(c.t, err)
		check.OK(c.t, c.Import(c.t.Context(), c.p, export.Deadline, Share{0, export.Tasks})[0].Err)
		settled, err := c.Shard(1).RemoveExported(c.t.Context(), exportLeases(export))
		check.OK(c.t, err)
		at, err = c.Shard(1).ScanPass(c.t.Context(), c.p, at, next, settled < len(ids))
		check.OK(c.t, err)
		seen(at)
	}
}

func TestAPassThatBeganBeforeARestartOfRedisProvesNothing(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--appendfsync", "always")
	c := sandboxOn(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}}, "own", 2)
	const tasks = 3 * MaxBatch
	for batch := range 3 {
		b := Put{Shard: 1}
		for i := range MaxBatch {
			b.Entries = append(b.Entries, entry(fmt.Sprint(batch, "-", i), task.In(time.Hour)))
		}
		check.OK(c.t, c.tryPut(c.p, b).Err)
	}
	c.begin(1)
	stored := func(shard int) int64 { return c.rdb.ZCard(c.t.Context(), c.Shard(shard).due()).Val() }
	before := Pass{}
	c.moveOut(func(at Pass) {
		if before.Number == "" && stored(1) <= tasks/2 {
			before = at
			check.OK(c.t, server.Kill())
			check.OK(c.t, server.Restart(c.t.Context()))
		}
	})
	if before.Cursor == 0 {
		t.Fatal("Redis was not restarted within a pass")
	}
	check.Equal(t, "tasks left in a shard that is clean", stored(1), 0)
	check.Equal(t, "tasks where they belong", stored(0), tasks)
	at, err := c.Shard(1).Pass(c.t.Context(), c.p)
	check.OK(c.t, err)
	if at.Number[:40] == before.Number[:40] {
		t.Errorf("pass %s has the name of %s, of a process that is gone", at.Number, before.Number)
	}
}

func TestAMemberWithoutARecordDoesNotKeepItsShardFromGettingClean(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	check.OK(c.t, c.tryPut(c.p, Put{Shard: 1, Entries: []Entry{entry("a", task.In(time.Hour))}}).Err)
	c.begin(1)
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(1).due(), redis.Z{Score: 1, Member: "waiting"},
		redis.Z{Score: -1, Member: "lapsed"}, redis.Z{Score: math.Inf(1), Member: "parked"}).Err())
	passes := 0
	c.moveOut(func(at Pass) { passes = at.Count })
	check.Equal(t, "passes begun", passes, 3) // one that met them, one that proves, the next
	check.Equal(t, "members left", c.rdb.ZCard(c.t.Context(), c.Shard(1).due()).Val(), 0)
	c.read("a")
	check.Equal(t, "members that moved", c.rdb.ZCard(c.t.Context(), c.Shard(0).due()).Val(), 1)
}

func (c *sandbox) pass() Pass {
	c.t.Helper()
	at, err := c.Shard(0).Pass(c.t.Context(), c.p)
	check.OK(c.t, err)
	return at
}

func (c *sandbox) step(from Pass, to uint64, dirty bool) Pass {
	c.t.Helper()
	at, err := c.Shard(0).ScanPass(c.t.Context(), c.p, from, to, dirty)
	check.OK(c.t, err)
	return at
}

// disposition is where a pass stands, without the name of the server process.
func disposition(p Pass) Pass {
	p.Number = ""
	return p
}
