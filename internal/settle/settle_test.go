package settle

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/internal/window"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// claimed returns a settler of the topic orders, and the lease of task a in its shard 0.
func claimed(t *testing.T) (*Settler, *fixture.Redis, shard.Lease) {
	t.Helper()
	r := fixture.New(t)
	orders, p := r.Serve(t, 1)
	fixture.Put(t, orders, p, 0, fixture.Entries(task.Now(), []byte{0}, "a")...)
	batch, err := orders.Shard(0).Claim(t.Context(), shard.Claim{Claimant: "w", Request: "1", Limit: 1, Lease: time.Hour})
	if err != nil || len(batch.Tasks) != 1 {
		t.Fatalf("claimed %d, %v", len(batch.Tasks), err)
	}
	convoy := r.Store.NewConvoy()
	t.Cleanup(convoy.Wait)
	cfg := Config{Topic: orders, Convoy: convoy, Window: window.NewBudget(1 << 20).Window(2000), Metrics: counters(),
		Tried: func(string, error) {}}
	return New(cfg), r, batch.Tasks[0].Lease()
}

func counters() *Metrics { return telemetry.DeclareForTopics[Metrics](&telemetry.Set{})("orders") }

// stored reports whether task a is in shard 0.
func stored(t *testing.T, s *Settler) bool {
	t.Helper()
	_, err := s.cfg.Topic.Shard(0).Read(t.Context(), fixture.Placement(t, s.cfg.Topic), "a")
	return err == nil
}

// Outcomes that couldn't be written to Redis during an outage are written after it. Until
// then they keep their places in the window, which bounds the memory.
func TestTheSettlerOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--appendfsync", "always") // everysec may delay a write while the disk is busy
	rdb := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, DialTimeout: check.Hang, ReadTimeout: check.Hang, WriteTimeout: check.Hang,
	})
	defer rdb.Close()
	store, err := shard.New(rdb, "settler")
	check.OK(t, err)
	orders := store.Topic("orders")
	p, err := orders.Ensure(t.Context(), 1)
	check.OK(t, err)
	fixture.Put(t, orders, p, 0, fixture.Entries(task.Now(), []byte{0}, "done", "back")...)
	batch, err := orders.Shard(0).Claim(t.Context(), shard.Claim{Claimant: "w", Request: "1", Limit: 2, Lease: time.Hour})
	if err != nil || len(batch.Tasks) != 2 {
		t.Fatalf("claimed %d, %v", len(batch.Tasks), err)
	}

	w := window.NewBudget(1 << 20).Window(4)
	if got, err := w.Reserve(t.Context(), 2); err != nil || got.Tasks != 2 {
		t.Fatalf("room for %+v, %v", got, err)
	}
	failed := make(chan struct{}, 1000)
	convoy := store.NewConvoy()
	defer convoy.Wait()
	s := New(Config{Topic: orders, Convoy: convoy, Window: w, Metrics: counters(), Tried: func(_ string, err error) {
		if err == nil {
			return
		}
		select {
		case failed <- struct{}{}:
		default:
		}
	}})
	ctx, stop := context.WithCancel(t.Context())
	s.Start(ctx)
	defer s.Wait()
	defer stop()

	check.OK(t, server.Kill())
	for _, task := range batch.Tasks {
		lease := shard.Lease{ID: task.ID, Token: task.Token}
		if task.ID == "done" {
			s.Settle(0, lease)
		} else {
			s.Release(0, shard.Release{Lease: lease})
		}
	}
	check.Receive(t, "a settlement that failed", failed)
	if held, _ := w.InUse(); held != 2 {
		t.Fatalf("%d places taken while Redis knows of nothing", held)
	}
	check.OK(t, server.Restart(t.Context()))
	check.OK(t, s.Drain(check.Context(t)))
	stats, err := orders.Stats(t.Context(), 1)
	check.OK(t, err)
	if held, _ := w.InUse(); stats[0].Pending != 1 || stats[0].Leased != 0 || held != 0 {
		t.Fatalf("after the outage: %+v, %d places taken", stats[0], held)
	}
}

// A shard whose settlement failed rests, and another shard is settled meanwhile.
func TestAShardThatCannotBeSettledHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	s, r, lease := claimed(t)
	tried := make(chan error, 10)
	s.cfg.Tried = func(_ string, err error) { tried <- err }
	check.OK(t, r.Client.Set(t.Context(), r.Prefix+":due:{orders:1}", "in the way", 0).Err())
	s.Settle(1, lease)
	s.Start(t.Context())
	t.Cleanup(s.Wait)
	if err := check.Receive(t, "a settlement that fails", tried); err == nil {
		t.Fatal("the settlement of a key of another type worked")
	}
	var resting *settlement
	check.Until(t, "the shard to rest", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if resting = s.pending[1]; resting != nil {
			resting.rest = time.Now().Add(time.Hour)
		}
		return resting != nil
	})
	var triedOnce retry.Backoff
	triedOnce.Next()
	check.Equal(t, "the backoff", resting.retry, triedOnce)
	s.Settle(0, lease)
	check.OK(t, check.Receive(t, "the settlement of the other shard", tried))
	if stored(t, s) {
		t.Error("the other shard is not settled")
	}
	s.mu.Lock()
	if s.pending[1] != resting || resting.retry != triedOnce || len(resting.Settle) != 1 {
		t.Errorf("the shard that rests: %+v", s.pending[1])
	}
	resting.rest = time.Time{}
	s.mu.Unlock()
	check.OK(t, r.Client.Del(t.Context(), r.Prefix+":due:{orders:1}").Err())
	check.OK(t, s.Drain(check.Context(t)))
	check.OK(t, check.Receive(t, "the settlement after it", tried))
	check.Equal(t, "pending", len(s.pending), 0)
}

// TestANodeWhoseSettlementHangsHoldsNoOtherUp: and tasks that become pending there meanwhile are settled
// afterwards.
func TestANodeWhoseSettlementHangsHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	cluster := servertest.OwnRedisCluster(t)
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: cluster.Addrs(), IsClusterMode: true})
	defer rdb.Close()
	store, err := shard.New(rdb, "settler")
	check.OK(t, err)
	orders := store.Topic("orders")
	_, err = orders.Ensure(t.Context(), 64)
	check.OK(t, err)
	other := 1
	for orders.Shard(other).Node(t.Context()) == orders.Shard(0).Node(t.Context()) {
		other++
	}
	tried := make(chan error, 10)
	s := New(Config{Topic: orders, Convoy: store.NewConvoy(), Window: window.NewBudget(1 << 20).Window(2000),
		Metrics: counters(), Tried: func(_ string, err error) { tried <- err }})
	s.Start(t.Context())
	defer s.cfg.Convoy.Wait()
	defer s.Wait()
	caught, letGo := faults.Hang(t, rdb, "{orders:0}")
	defer letGo() // before the settler must end
	lease := shard.Lease{ID: "a", Token: "-1"}
	s.Settle(0, lease)
	check.Receive(t, "the settlement that hangs", caught)
	s.Settle(0, lease)
	s.Settle(other, lease)
	check.OK(t, check.Receive(t, "the settlement at the other node", tried))
	check.Equal(t, "settlements of the shard that are under way besides", len(caught), 0)
	letGo()
	check.OK(t, s.Drain(check.Context(t)))
	check.OK(t, check.Receive(t, "the settlement that hung", tried))
	check.OK(t, check.Receive(t, "the settlement after it", tried))
}

// Outcomes gather until it is time, until they take a share of the window, or until the
// scanner stops.
func TestSettlementsGather(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	topic, _ := r.Serve(t, 1)
	tried := make(chan string, 10)
	w, convoy := window.NewBudget(1<<20).Window(4*8), r.Store.NewConvoy()
	convoy.Slot = time.Hour
	note := func(operation string, err error) { tried <- fmt.Sprint(operation, err) }
	s := New(Config{Topic: topic, Convoy: convoy, Window: w, Metrics: counters(), Tried: note})
	running, stop := context.WithCancel(t.Context())
	defer convoy.Wait()
	defer s.Wait()
	defer stop()
	s.Start(running)
	lease := shard.Lease{ID: "a", Token: "-1"}
	for range 3 {
		s.Settle(0, lease)
	}
	if n := len(tried); n != 0 {
		t.Fatalf("%d settlements before anything was due", n)
	}
	s.Settle(0, lease) // an eighth of the window
	if got := check.Receive(t, "a settlement", tried); got != "settle<nil>" {
		t.Fatal(got)
	}
	if err := s.Drain(check.Context(t)); err != nil || len(tried) != 0 {
		t.Fatalf("drained: %v, after %d more settlements", err, len(tried))
	}
	s.Settle(0, lease)
	if err := s.Drain(check.Context(t)); err != nil {
		t.Fatalf("what gathers at the end: %v", err)
	}
	if got := check.Receive(t, "a settlement at the end", tried); got != "settle<nil>" {
		t.Fatal(got)
	}
}
