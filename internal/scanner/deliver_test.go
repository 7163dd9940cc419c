package scanner

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

func TestRetryDelaysStayWithinTheirBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Minute)).Draw(t, "min"))
		most := least + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "more"))
		attempt := rapid.IntRange(1, 2000).Draw(t, "attempt")
		d := retryDelay(least, most, attempt)
		if d > most || d < least-least/5-1 {
			t.Fatalf("attempt %d: %v, not within a fifth of %v to %v", attempt, d, least, most)
		}
		if full := retry.Exponential(least, most, attempt-1); attempt > 70 && full != most {
			t.Fatalf("attempt %d: %v, not yet %v", attempt, full, most)
		}
	})
}

// What Redis could not be told of during an outage it is told of after it, and
// until then the window stays taken: that bounds the memory.
func TestTheSettlerOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "redis-server")
	server, err := servers.StartRedis(t.Context(), servers.RedisConfig{
		Dir: t.TempDir(), Args: []string{"--appendfsync", "always"}, // everysec may put a write off while the disk is busy
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Kill() //nolint:errcheck // the test is over
	rdb := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, DialTimeout: wait.Hang, ReadTimeout: wait.Hang, WriteTimeout: wait.Hang,
	})
	defer rdb.Close()
	store, err := shard.New(rdb, "settler")
	if err != nil {
		t.Fatal(err)
	}
	orders := store.Topic("orders")
	p, err := orders.Ensure(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	now, err := store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entries := []shard.Entry{{ID: "done", Body: []byte{0}}, {ID: "back", Body: []byte{0}}}
	if r := orders.Put(t.Context(), p, now+time.Hour.Milliseconds(), []shard.Put{{Op: shard.NewOp(), Entries: entries}})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	batch, err := orders.Shard(0).Claim(t.Context(), shard.Claim{Claimant: "w", Request: "1", Limit: 2, Lease: time.Hour})
	if err != nil || len(batch.Tasks) != 2 {
		t.Fatalf("claimed %d, %v", len(batch.Tasks), err)
	}

	w := newWindow(2)
	if _, err := w.reserve(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	failed := make(chan struct{}, 1000)
	s := newSettler(orders, w, func(_ string, err error) {
		if err == nil {
			return
		}
		select {
		case failed <- struct{}{}:
		default:
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.run(ctx) }()
	defer func() { stop(); <-done }()

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, task := range batch.Tasks {
		lease := shard.Lease{ID: task.ID, Token: task.Token}
		if task.ID == "done" {
			s.settle(0, lease)
		} else {
			s.release(0, shard.Release{Lease: lease})
		}
	}
	wait.Receive(t, "a settlement that failed", failed)
	if w.inUse() != 2 {
		t.Fatalf("%d places taken while Redis knows of nothing", w.inUse())
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.drain(wait.Context(t)); err != nil {
		t.Fatal(err)
	}
	stats, err := orders.Stats(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if stats[0].Pending != 1 || stats[0].Leased != 0 || w.inUse() != 0 {
		t.Fatalf("after the outage: %+v, %d places taken", stats[0], w.inUse())
	}
}

// A shard whose settlement failed rests; what another's tasks came to is told
// meanwhile.
func TestAShardThatCannotBeSettledHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(shard.In(0), "a")
	batch, err := b.topic.store.Shard(0).Claim(t.Context(), b.topic.newWorker(0).newClaim(t.Context(), 1, time.Hour))
	if err != nil || len(batch.Tasks) != 1 {
		t.Fatalf("claimed %d, %v", len(batch.Tasks), err)
	}
	if err := b.rdb.Set(t.Context(), b.prefix+":due:{orders:1}", "in the way", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s := b.topic.settler
	lease := shard.Lease{ID: "a", Token: batch.Tasks[0].Token}
	s.settle(1, lease)
	s.round(t.Context())
	resting := s.pending[1]
	if resting == nil || !resting.rest.After(time.Time{}) || resting.retry.Tries() != 1 {
		t.Fatalf("the shard that failed: %+v", resting)
	}
	resting.rest = time.Now().Add(time.Hour)
	s.settle(0, lease)
	s.round(t.Context())
	if b.in(0, "a") || s.pending[0] != nil {
		t.Error("the other shard is not settled")
	}
	if s.pending[1] != resting || resting.retry.Tries() != 1 || len(resting.settle) != 1 {
		t.Errorf("the shard that rests: %+v", s.pending[1])
	}
	resting.rest = time.Time{}
	if err := b.rdb.Del(t.Context(), b.prefix+":due:{orders:1}").Err(); err != nil {
		t.Fatal(err)
	}
	s.round(t.Context())
	if err := s.drain(t.Context()); err != nil || len(s.pending) != 0 {
		t.Errorf("after it: %v, %+v", err, s.pending)
	}
}

// What became of tasks gathers, until the time has come, or it takes a share of the
// window, or the scanner ends.
func TestSettlementsGather(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tried := make(chan string, 10)
	s := newSettler(b.topic.store, newWindow(4*8), func(operation string, err error) { tried <- fmt.Sprint(operation, err) })
	s.began = time.Now().Add(time.Hour) // a round an hour from now
	running, stop := context.WithCancel(t.Context())
	defer stop()
	go s.run(running)
	lease := shard.Lease{ID: "a", Token: "-1"}
	for range 3 {
		s.settle(0, lease)
	}
	if n := len(tried); n != 0 {
		t.Fatalf("%d settlements before anything was due", n)
	}
	s.settle(0, lease) // an eighth of the window
	if got := wait.Receive(t, "a settlement", tried); got != "settle<nil>" {
		t.Fatal(got)
	}
	if err := s.drain(wait.Context(t)); err != nil || len(tried) != 0 {
		t.Fatalf("drained: %v, after %d more settlements", err, len(tried))
	}
	s.mu.Lock()
	s.began = time.Now().Add(time.Hour)
	s.mu.Unlock()
	s.settle(0, lease)
	if err := s.drain(wait.Context(t)); err != nil {
		t.Fatalf("what gathers at the end: %v", err)
	}
	if got := wait.Receive(t, "a settlement at the end", tried); got != "settle<nil>" {
		t.Fatal(got)
	}
}
