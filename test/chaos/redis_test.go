//go:build chaos

package chaos_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestRedisKilled: kill -9 and restart of a Redis that syncs every write.
func TestRedisKilled(t *testing.T) {
	r := newHarness(t, options{})
	r.begin()
	for range 2 {
		check.OK(t, r.redis.Kill())
		r.lasts(3 * time.Second)
		check.OK(t, r.redis.Restart(t.Context()))
		back, n := time.Now(), r.recorder.Ledger.Count()
		r.await("tasks after Redis came back", func() bool { return r.recorder.Ledger.Count() > n+loadBatch })
		if took := time.Since(back); took > 2*time.Second {
			t.Errorf("the first tasks came %s after Redis was back, want them within 2 s", took)
		}
		r.lasts(2 * time.Second)
	}
	// Tasks that were confirmed but not settled when Redis died wait for Redis. A
	// schedule whose reply was lost may be repeated after its task was delivered.
	r.verdict("Redis: kill -9 and restart, twice", allowance{repeats: 2 * 3 * inFlight})
}

// TestRedisLosesItsEnd: the append-only file loses its last bytes. Tasks of these bytes
// are lost or repeated, and no task stays undelivered for ever.
func TestRedisLosesItsEnd(t *testing.T) {
	r := newHarness(t, options{})
	r.begin()
	r.lasts(2 * time.Second)
	check.OK(t, r.redis.Kill())
	gone := cutEnd(t, filepath.Join(r.dir, "redis", "appendonlydir"), 20_000)
	check.OK(t, r.redis.Restart(t.Context()))
	n := r.recorder.Ledger.Count()
	r.await("tasks after Redis came back", func() bool { return r.recorder.Ledger.Count() > n+10*loadBatch })
	// A stored task takes at least 200 bytes of the file for its payload, a removal at least
	// 40.
	r.verdict("Redis: the last 20 kB of its file are lost", allowance{
		lost: gone / 200, undone: gone / 40, repeats: gone/40 + 3*inFlight, unmarked: gone / 40,
	})
}

// cutEnd removes the last size bytes of the newest increment of an append-only file.
func cutEnd(t *testing.T, dir string, size int64) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.incr.aof"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no append-only file in %s: %v", dir, err)
	}
	last := files[len(files)-1]
	info, err := os.Stat(last)
	if err == nil {
		err = os.Truncate(last, max(0, info.Size()-size))
	}
	check.OK(t, err)
	return int(min(size, info.Size()))
}

// TestRedisFull: at maxmemory stored tasks are still delivered, and a schedule returns
// ErrRedisFull.
func TestRedisFull(t *testing.T) {
	r := newHarness(t, options{})
	r.begin()
	r.lasts(time.Second)
	check.OK(t, r.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := r.recorder.Client.Schedule(t.Context(), producer.Request{Topic: "orders", ID: "full",
		When: producer.In(time.Hour)})
	if !errors.Is(err, task.ErrRedisFull) {
		t.Errorf("schedule in a full Redis: %v, want %v", err, task.ErrRedisFull)
	}
	ledger := r.recorder.Ledger
	r.await("the stored tasks to be delivered from a full Redis", func() bool { return ledger.Missing() == 0 })
	check.OK(t, r.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	n := ledger.Count()
	r.await("tasks once there is room", func() bool { return ledger.Count() > n+10*loadBatch })
	r.verdict("Redis: at maxmemory", allowance{})
}

// TestRedisDistracted: Redis's scripts are flushed, a script blocks Redis (BUSY), Redis
// is a replica for a while (READONLY), and it reloads its file (LOADING).
func TestRedisDistracted(t *testing.T) {
	r := newHarness(t, options{})
	r.begin()
	for range 20 {
		check.OK(t, r.client.ScriptFlush(t.Context()).Err())
		r.lasts(100 * time.Millisecond)
	}
	check.OK(t, r.client.ConfigSet(t.Context(), "busy-reply-threshold", "100").Err())
	busy := make(chan error, 1)
	go func() {
		const spin = "local t = redis.call('TIME') local till = t[1] * 1000 + t[2] / 1000 + 2000 repeat t = " +
			"redis.call('TIME') until t[1] * 1000 + t[2] / 1000 > till"
		busy <- r.client.Eval(context.WithoutCancel(t.Context()), spin, nil).Err()
	}()
	r.lasts(3 * time.Second)
	if err := <-busy; err != nil && err.Error() != "redis: nil" {
		t.Fatal(err)
	}
	// A replica without a reachable master keeps its data and refuses writes.
	check.OK(t, r.client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	r.lasts(2 * time.Second)
	check.OK(t, r.client.ReplicaOf(t.Context(), "no", "one").Err())
	r.lasts(2 * time.Second)
	r.reload()
	r.lasts(2 * time.Second)
	r.verdict("Redis: SCRIPT FLUSH, BUSY, READONLY, LOADING", allowance{repeats: 3 * inFlight})
}

// reload makes Redis reload its file, slowly, and answer LOADING meanwhile.
func (r *harness) reload() {
	r.t.Helper()
	options := r.direct
	options.MaxRetries, options.ReadTimeout = -1, patience
	rdb := redis.NewUniversalClient(&options)
	defer rdb.Close()
	ctx := context.WithoutCancel(r.t.Context())
	r.must(rdb.ConfigSet(ctx, "key-load-delay", "50").Err()) // microseconds a command
	r.must(rdb.Do(ctx, "DEBUG", "LOADAOF").Err())
	info, err := rdb.Info(ctx, "errorstats").Result()
	r.must(err)
	if !strings.Contains(info, "errorstat_LOADING") {
		r.t.Errorf("no command was answered with LOADING: %s", info)
	}
}

// TestRedisReplyLost: connections between scanners and Redis are reset again and again,
// in the middle of requests and replies.
func TestRedisReplyLost(t *testing.T) {
	r := newHarness(t, options{badRedis: true})
	r.begin()
	for range 20 {
		r.toRedis.cut()
		r.lasts(300 * time.Millisecond)
	}
	r.verdict("Redis: connections reset, twenty times", allowance{})
	if r.arrivals.gap > leaseTime/2 {
		t.Errorf("nothing arrived for %s: a task waited for its lease to expire", r.arrivals.gap)
	}
}

// TestRedisSlow: latency, low bandwidth, resets.
func TestRedisSlow(t *testing.T) {
	checkSlow(t, "Redis", options{badRedis: true}, func(r *harness) *network { return r.toRedis })
}
