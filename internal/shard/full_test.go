package shard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// ownRedis is a topic on a server that a test may fill and flush.
func ownRedis(t *testing.T, args ...string) *sandbox {
	t.Helper()
	return sandboxOn(t, servertest.RedisOptions(servertest.OwnRedis(t, args...).Addr()), "own", 1)
}

func TestAFullRedisGoesOnDelivering(t *testing.T) {
	t.Parallel()
	c := ownRedis(t, "--maxmemory", "16mb", "--maxmemory-policy", "noeviction", "--appendonly", "no")
	c.put(task.Now(), "a", "b", "c", "d")
	c.put(task.In(time.Hour), "later")
	big := body(strings.Repeat("x", 64<<10))
	fill := func(i int) error {
		return c.tryPut(c.p, Put{Entries: []Entry{{ID: fmt.Sprint("fill-", i), When: task.In(time.Hour), Body: big}}}).Err
	}
	var full error
	for i := 0; full == nil && i < 1000; i++ {
		full = fill(i)
	}
	if !errors.Is(full, task.ErrRedisFull) || !strings.Contains(full.Error(), "maxmemory") {
		t.Fatalf("put: got %v", full)
	}
	// Buffers of connections count as used memory, and their size depends on the version.
	used, err := strconv.Atoi(registry.ParseInfo(c.rdb.Info(c.t.Context(), "memory").Val())["used_memory"])
	check.OK(c.t, err)
	check.OK(c.t, c.rdb.ConfigSet(c.t.Context(), "maxmemory", strconv.Itoa(used-(512<<10))).Err())
	stillFull := func() {
		t.Helper()
		if err := fill(2000); !errors.Is(err, task.ErrRedisFull) {
			t.Fatalf("there is room again: %v", err)
		}
	}
	drawn, err := c.Draw(c.t.Context(), Draw{Instance: "here", N: 1})
	check.OK(c.t, err)
	check.Equal(t, "placement", drawn.Placement, c.p)
	check.OK(c.t, c.Attention(c.t.Context(), 0)[0].Err)
	b := c.claimIDs("a", "b", "c", "d")
	stillFull()
	l := leases(b)
	check.Equal(t, "released", c.release(Release{Lease: l[0], Delay: time.Hour, Attempted: true, Reason: "busy"}), 1)
	check.Equal(t, "parked", c.release(Release{Lease: l[1], Park: true, Attempted: true, Reason: "given up"}), 1)
	n, err := c.Shard(0).Replay(c.t.Context(), l[1].ID)
	check.OK(c.t, err)
	check.Equal(t, "replayed", n, 1)
	_, err = c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: "later", When: task.Now()})
	check.OK(c.t, err)
	stillFull()
	_, err = c.Shard(0).Export(c.t.Context(), c.p, Export{Claimant: "m", Request: "1", Lease: time.Minute,
		IDs: []string{"fill-0"}})
	if !errors.Is(err, task.ErrRedisFull) {
		t.Fatalf("export: got %v", err)
	}
	err = c.Import(c.t.Context(), c.p, c.now()+60_000, Share{0, []ExportedTask{{"x", "1", head + "\x00"}}})[0].Err
	if !errors.Is(err, task.ErrRedisFull) {
		t.Fatalf("import: got %v", err)
	}
	check.Equal(t, "cancelled", c.delete(l[2].ID), true)
	check.Equal(t, "settled", c.settle(l[3]), 1)
	stillFull()
	for i := range 20 {
		check.Equal(t, "cancelled", c.delete(fmt.Sprint("fill-", i)), true)
	}
	check.OK(c.t, fill(0))
}

func TestAScriptCacheThatWasFlushedIsFilledAgain(t *testing.T) {
	t.Parallel()
	c := ownRedis(t)
	flush := func() { check.OK(c.t, c.rdb.ScriptFlush(c.t.Context()).Err()) }
	flush()
	c.put(task.Now(), "a")
	flush()
	b := c.claimIDs("a")
	flush()
	check.Equal(t, "released", c.release(Release{Lease: leases(b)[0]}), 1)
	b = c.claimIDs("a")
	flush()
	check.Equal(t, "settled", c.settle(leases(b)...), 1)
	flush()
	_, err := c.Stats(c.t.Context(), 3)
	check.OK(c.t, err)
}

// TestAScriptCacheThatIsFlushedWithinAPipelineLosesNoTask: the cache is emptied in the
// middle of every pipeline.
func TestAScriptCacheThatIsFlushedWithinAPipelineLosesNoTask(t *testing.T) {
	t.Parallel()
	c := ownRedis(t)
	c.put(task.In(time.Hour), "warm")
	rdb, ok := c.rdb.(*redis.Client)
	check.Equal(t, "a plain client", ok, true)
	plain := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr})
	defer plain.Close()
	faults.Around(rdb, func(ctx context.Context, r faults.Request) error {
		if !r.Pipelined {
			return r.Send(ctx)
		}
		first, second := r, r
		half := len(r.Commands) / 2
		first.Commands, second.Commands = r.Commands[:half], r.Commands[half:]
		return errors.Join(first.Send(ctx), plain.ScriptFlush(ctx).Err(), second.Send(ctx))
	})
	batches := make([]Put, 4)
	for i := range batches {
		batches[i] = Put{Shard: i, Op: NewOp(), Entries: []Entry{entry(fmt.Sprint(i), task.Now())}}
	}
	for i, r := range c.Put(c.t.Context(), c.p, c.notAfter(), batches) {
		check.OK(c.t, r.Err)
		check.Equal(t, "due times", len(r.Due), 1)
		s, err := c.Shard(i).Read(c.t.Context(), c.p, fmt.Sprint(i))
		check.OK(c.t, err)
		check.Equal(t, "due", s.Next.UnixMilli(), r.Due[0])
	}
	_, err := c.Stats(c.t.Context(), 4)
	check.OK(c.t, err)
}
