package shard

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// cutRecord says that it has a score from before, and ends in front of it.
const cutRecord = "\x12" + headRest

// plant stores a record as it is.
func (c *sandbox) plant(id, record string, score float64) {
	c.t.Helper()
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.Shard(0).tasks(), id, record).Err())
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(0).due(), redis.Z{Score: score, Member: id}).Err())
}

// kept ends the test unless a record is as it was planted.
func (c *sandbox) kept(id, record string) {
	c.t.Helper()
	raw, err := c.rdb.HGet(c.t.Context(), c.Shard(0).tasks(), id).Result()
	check.OK(c.t, err)
	check.Equal(c.t, "record of "+id, raw, record)
}

func TestADamagedRecordDoesNotHoldUpTheOthersOfItsShard(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.plant("short", "\x10cut", 1)
	c.plant("cut", cutRecord, -1)
	c.put(task.Now(), "a")
	b := c.claimFor(30 * time.Millisecond)
	c.sameIDs(b, "a")
	check.Equal(t, "bad", len(b.Bad), 2)
	check.Until(t, "the leases end", func() bool { b = c.claim(); return len(b.Tasks) > 0 })
	c.sameIDs(b, "a")
	check.Equal(t, "bad", len(b.Bad), 2)
	releases := []Release{
		{Lease: Lease{ID: "short", Token: b.Bad[0].Token}, Park: true, Reason: "unreadable"},
		{Lease: Lease{ID: "cut", Token: b.Bad[0].Token}, Park: true, Attempted: true},
		{Lease: leases(b)[0]},
	}
	check.Equal(t, "released", c.release(releases...), 3)
	c.claimIDs("a")
	stats, err := c.Stats(c.t.Context(), 1)
	check.OK(c.t, err)
	check.Equal(t, "parked", stats[0].Parked, 2)
	c.kept("short", "\x10cut")
	c.kept("cut", cutRecord)
}

func TestADamagedRecordDoesNotMakeAnExportedNeighbourEarly(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	due := c.put(task.In(time.Hour), "exported")[0]
	check.Equal(t, "exported", len(c.export(30*time.Millisecond, "exported").Tasks), 1)
	c.plant("cut", cutRecord, -1) // its lease ended before, so it comes behind
	check.Until(t, "the export lapses", func() bool {
		c.claimIDs()
		return c.read("exported").State != task.Leased
	})
	check.Equal(t, "next", c.in("exported", task.Waiting).Next.UnixMilli(), due)
	c.claimIDs()
}

func TestALapsedExportOfANewerFormatIsNotMadeDue(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 2)
	due := c.put(task.In(time.Hour), "a")[0]
	check.Equal(t, "exported", len(c.export(30*time.Millisecond, "a").Tasks), 1)
	record := c.read("a").raw
	check.OK(c.t, c.rdb.HSet(c.t.Context(), c.Shard(0).tasks(), "a", "\x50"+record[1:]).Err())
	var b Batch
	check.Until(t, "the export lapses", func() bool { b = c.claim(); return b.Skipped == 1 })
	c.kept("a", "\x50"+record[1:])
	score := c.rdb.ZScore(c.t.Context(), c.Shard(0).due(), "a").Val()
	check.Equal(t, "leased for", int64(-score)-b.Now.UnixMilli(), 60_000)

	c.plant("a", record, -1) // the minute is over, and this scanner reads the format
	c.claimIDs()
	check.Equal(t, "next", c.in("a", task.Waiting).Next.UnixMilli(), due)
}

func TestADamagedRecordIsReleasedWithADelay(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.plant("cut", cutRecord, 1)
	for range 2 { // as soon as may be, and later
		b := c.claim()
		check.Equal(t, "bad", len(b.Bad), 1)
		check.Equal(t, "released", c.release(Release{Lease: Lease{ID: "cut", Token: b.Bad[0].Token}}), 1)
	}
	b := c.claim()
	check.Equal(t, "released", c.release(Release{Lease: Lease{ID: "cut", Token: b.Bad[0].Token}, Delay: time.Hour}), 1)
	if wait := c.claim().Next.Sub(b.Now); wait < time.Hour-time.Second {
		t.Errorf("next in %s, want an hour", wait)
	}
}

func TestWhatCannotBeReadIsNeitherReplayedNorRescheduledNorExported(t *testing.T) {
	t.Parallel()
	for name, record := range map[string]string{"damaged": cutRecord, "newer": "\x50" + head[1:]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			far := float64(c.now() + time.Hour.Milliseconds())
			c.plant("parked", record, math.Inf(1))
			c.plant("waiting", record, far)
			n, err := c.Shard(0).Replay(c.t.Context(), "parked")
			check.OK(c.t, err)
			check.Equal(t, "replayed", n, 0)
			_, err = c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: "waiting", When: task.Now()})
			if err == nil || !strings.Contains(err.Error(), "UNREADABLE") {
				t.Fatalf("reschedule: got %v", err)
			}
			export, err := c.Shard(0).Export(c.t.Context(), c.p, Export{Claimant: "m", Request: "1", Lease: time.Minute,
				IDs: []string{"parked", "waiting"}})
			check.OK(c.t, err)
			check.Equal(t, "exported", len(export.Tasks), 0)
			c.kept("parked", record)
			c.kept("waiting", record)
			check.Equal(t, "score", c.rdb.ZScore(c.t.Context(), c.Shard(0).due(), "waiting").Val(), far)
			check.Equal(t, "deleted", c.delete("waiting"), true)
			n, err = c.Shard(0).PurgeParked(c.t.Context(), "parked")
			check.OK(c.t, err)
			check.Equal(t, "purged", n, 1)
		})
	}
}

func TestASchedulingReplacesWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.plant("a", "\x50", 1)
	c.put(task.Now(), "a")
	check.Equal(t, "payload", string(c.in("a", task.Waiting).Payload), "payload of a")
}

func TestShardsThatCannotBeReadAreLeftOutAndNamed(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 4)
	for at := range 4 {
		check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(at).due(), redis.Z{Score: 1, Member: "a"}).Err())
	}
	spoil := func(key string) {
		check.OK(c.t, c.rdb.Del(c.t.Context(), key).Err())
		check.OK(c.t, c.rdb.Set(c.t.Context(), key, "in the way", 0).Err())
	}
	spoil(c.Shard(2).due())
	stats, err := c.Stats(c.t.Context(), 4)
	check.Equal(t, "shards counted", len(stats), 3)
	check.Equal(t, "the last", stats[2], Stats{Shard: 3, Pending: 1, Backlog: 1, Oldest: time.UnixMilli(1).UTC(),
		Now: stats[2].Now})
	names := func(what string, err error, shards ...int) {
		t.Helper()
		unreadable := Unreadable(err)
		check.Equal(t, what+": shards named", len(unreadable), len(shards))
		for i, at := range shards {
			check.Equal(t, what, unreadable[i].Shard, at)
		}
		if !Definite(err) || !strings.Contains(err.Error(), "shard") || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: %v", what, err)
		}
	}
	names("stats", err, 2)
	spoil(c.Shard(7).due())
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(9).due(), redis.Z{Score: 1, Member: "a"}).Err())
	orphans, err := c.Orphans(c.t.Context(), c.p)
	names("orphans", err, 7)
	check.Equal(t, "orphans", orphans, Orphans{Tasks: 1, Within: 10})
	c.begin(3)
	progress, err := c.Progress(c.t.Context(), c.p)
	names("progress", err, 2)
	check.Equal(t, "shards", progress.Shards, 4)
	spoil(c.Shard(1).fence())
	names("fences", c.Forked(c.t.Context(), c.p), 1)
	if _, err := c.Ensure(c.t.Context(), 3); err != nil {
		t.Errorf("a placement that is there: %v", err)
	}
	for at := range 4 {
		spoil(c.Shard(at).due())
	}
	_, err = c.Stats(c.t.Context(), 4)
	names("stats of all", err, 0, 1, 2, 3)
	check.OK(c.t, c.rdb.Close())
	if _, err = c.Stats(c.t.Context(), 4); err == nil || Unreadable(err) != nil {
		t.Errorf("without Redis: %v, want an error that blames no shard", err)
	}
}

func TestAnIDThatNoTaskMayHaveIsCut(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("x", task.MaxID)
	for id, want := range map[string]string{
		"order-1":                   "order-1",
		longest:                     longest,
		strings.Repeat("x", 100000): longest[:64] + "... (100000 bytes)",
		strings.Repeat("x", 63) + strings.Repeat("é", 1000): longest[:63] + "... (2063 bytes)",
	} {
		check.Equal(t, "short ID", ShortID(id), want)
	}
}
