package scanner

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
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

// Outcomes that couldn't be written to Redis during an outage are written after it. Until
// then they keep their places in the window, which bounds the memory.
func TestTheSettlerOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--appendfsync", "always") // everysec may delay a write while the disk is busy
	rdb := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, DialTimeout: wait.Hang, ReadTimeout: wait.Hang, WriteTimeout: wait.Hang,
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

	w := newBudget(1 << 20).window(4)
	if got, err := w.reserve(t.Context(), 2); err != nil || got.tasks != 2 {
		t.Fatalf("room for %+v, %v", got, err)
	}
	failed := make(chan struct{}, 1000)
	s := newSettler(orders, nil, w, func(_ string, err error) {
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

	check.OK(t, server.Kill())
	for _, task := range batch.Tasks {
		lease := shard.Lease{ID: task.ID, Token: task.Token}
		if task.ID == "done" {
			s.settle(0, lease)
		} else {
			s.release(0, shard.Release{Lease: lease})
		}
	}
	wait.Receive(t, "a settlement that failed", failed)
	if held, _ := w.inUse(); held != 2 {
		t.Fatalf("%d places taken while Redis knows of nothing", held)
	}
	check.OK(t, server.Restart(t.Context()))
	check.OK(t, s.drain(wait.Context(t)))
	stats, err := orders.Stats(t.Context(), 1)
	check.OK(t, err)
	if held, _ := w.inUse(); stats[0].Pending != 1 || stats[0].Leased != 0 || held != 0 {
		t.Fatalf("after the outage: %+v, %d places taken", stats[0], held)
	}
}

// A shard whose settlement failed rests, and another shard is settled meanwhile.
func TestAShardThatCannotBeSettledHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	b.put(task.Now(), "a")
	batch, err := b.topic.store.Shard(0).Claim(t.Context(), b.topic.newWorker(0).newClaim(t.Context(),
		room{tasks: 1, bytes: claimBytes}, time.Hour))
	if err != nil || len(batch.Tasks) != 1 {
		t.Fatalf("claimed %d, %v", len(batch.Tasks), err)
	}
	check.OK(t, b.rdb.Set(t.Context(), b.prefix+":due:{orders:1}", "in the way", 0).Err())
	s := b.topic.settler
	var triedOnce retry.Backoff
	triedOnce.Next()
	lease := shard.Lease{ID: "a", Token: batch.Tasks[0].Token}
	s.settle(1, lease)
	s.round(t.Context())
	s.working.Wait()
	resting := s.pending[1]
	if resting == nil || !resting.rest.After(time.Time{}) || resting.retry != triedOnce {
		t.Fatalf("the shard that failed: %+v", resting)
	}
	resting.rest = time.Now().Add(time.Hour)
	s.settle(0, lease)
	s.round(t.Context())
	s.working.Wait()
	if b.in(0, "a") || s.pending[0] != nil {
		t.Error("the other shard is not settled")
	}
	if s.pending[1] != resting || resting.retry != triedOnce || len(resting.settle) != 1 {
		t.Errorf("the shard that rests: %+v", s.pending[1])
	}
	resting.rest = time.Time{}
	check.OK(t, b.rdb.Del(t.Context(), b.prefix+":due:{orders:1}").Err())
	s.round(t.Context())
	s.working.Wait()
	if err := s.drain(t.Context()); err != nil || len(s.pending) != 0 {
		t.Errorf("after it: %v, %+v", err, s.pending)
	}
}

// hanging blocks the commands of one shard until it is let go.
type hanging struct {
	key    string
	caught wake.Signal
	free   chan struct{}
}

// hang blocks all commands about a shard that a client sends from now on, until letGo is
// called or the test ends.
func hang(t *testing.T, rdb redis.UniversalClient, at int) (h *hanging, letGo func()) {
	h = &hanging{key: fmt.Sprintf("{orders:%d}", at), caught: make(wake.Signal, 100), free: make(chan struct{})}
	letGo = sync.OnceFunc(func() { close(h.free) })
	t.Cleanup(letGo)
	faults.Before(rdb, h.delay)
	return h, letGo
}

// delay blocks a request of the shard.
func (h *hanging) delay(r faults.Request) {
	if strings.Contains(fmt.Sprint(r.Commands[0].Args()...), h.key) {
		h.caught.Send()
		<-h.free
	}
}

// TestAShardWhoseSettlementHangsHoldsNoOtherUp: and tasks that become pending there
// meanwhile are settled afterwards.
func TestAShardWhoseSettlementHangsHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	b.put(task.Now(), "a")
	batch, err := b.topic.store.Shard(0).Claim(t.Context(), b.topic.newWorker(0).newClaim(t.Context(),
		room{tasks: 1, bytes: claimBytes}, time.Hour))
	if err != nil || len(batch.Tasks) != 1 {
		t.Fatalf("claimed %d, %v", len(batch.Tasks), err)
	}
	s := b.topic.settler
	wait.Background(t, "the settler", func(ctx context.Context) error { s.run(ctx); return nil })
	h, letGo := hang(t, b.rdb, 1)
	t.Cleanup(letGo) // before the settler must end
	lease := shard.Lease{ID: "a", Token: batch.Tasks[0].Token}
	s.settle(1, lease)
	wait.Receive(t, "the settlement that hangs", h.caught)
	s.settle(1, lease)
	s.settle(0, lease)
	wait.For(t, "the other shard to be settled", func() bool { return !b.in(0, "a") })
	if n := len(h.caught); n > 0 {
		t.Error("two settlements of one shard are under way")
	}
	letGo()
	check.OK(t, s.drain(wait.Context(t)))
}

// Outcomes gather until it is time, until they take a share of the window, or until the
// scanner stops.
func TestSettlementsGather(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	tried := make(chan string, 10)
	s := newSettler(b.topic.store, nil, newBudget(1<<20).window(4*8), func(operation string,
		err error) {
		tried <- fmt.Sprint(operation, err)
	})
	s.began = time.Now().Add(time.Hour) // the next round is an hour from now
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

// TestWhatIsInFlightIsBoundedInBytes: all tasks are due at once, the broker confirms
// slowly, and the window would admit all of them.
func TestWhatIsInFlightIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": one("tick: 50ms")}, nil)
	if l.budget.limit != 64<<20 {
		t.Errorf("the budget is of %d bytes, want what in_flight_bytes is by default", l.budget.limit)
	}
	const limit, payload, tasks = 1 << 20, 20 << 10, 60
	l.budget.limit = limit
	var mostBytes atomic.Int64 // in flight at a call to Redis
	faults.Before(l.rdb, func(faults.Request) {
		n := int64(l.budget.inUse())
		for most := mostBytes.Load(); n > most && !mostBytes.CompareAndSwap(most, n); most = mostBytes.Load() {
		}
	})
	faults.Toxic(t, l.bridge, "slow", "latency", "downstream", map[string]any{"latency": 100})
	l.start()
	topic := l.topic("orders")
	ids := fixture.Belonging(fixture.Placement(t, topic), 0, tasks)
	fixture.Store(t, topic, fixture.Entries(task.Now(), make([]byte, payload), ids...)...)
	wait.Progress(t, "all to be delivered", func() int { return int(l.value("duefleet_forwarded_total")) }, l.empty)
	if most := int(mostBytes.Load()); most > limit/parts || most < payload {
		t.Errorf("%d bytes were in flight at a time, want at most a quarter of %d", most, limit)
	}
	wait.For(t, "all room to be given back", func() bool {
		held, bytes := l.served("orders").topic.window.inUse()
		return held == 0 && bytes == 0
	})
}

// TestEveryOutcomeFreesThePlaceOfItsTask: whatever the publisher answers, the task is
// settled or released once, and its bytes of the window are free. The compiler checks that
// a message's owner is one that does this.
func TestEveryOutcomeFreesThePlaceOfItsTask(t *testing.T) {
	t.Parallel()
	outcomes := []forward.Outcome{forward.Confirmed, forward.Returned, forward.Refused, forward.Unknown, forward.Unsent,
		forward.Overdue}
	for _, outcome := range outcomes {
		topic := newUnconnected(t).newTopic(config.Document{Name: "orders", Topic: config.DefaultTopic("orders")})
		claimed := shard.Claimed{Task: task.Task{ID: "a", Attempt: 1, Payload: []byte("payload")}, Token: "1"}
		place, err := topic.window.reserve(t.Context(), 1)
		check.OK(t, err)
		i := item{&delivery{topic: topic, settings: topic.inForce.settings()}, &claimed, bytesOf([]shard.Claimed{claimed})}
		topic.window.keepRoom(place, 1, i.bytes)
		topic.resolved([]forward.Result{{Message: &forward.Message{Task: claimed.Task, Owner: &i}, Outcome: outcome}})
		pending := topic.settler.pending[0]
		if _, bytes := topic.window.inUse(); bytes != 0 || pending == nil {
			t.Fatalf("%s: %d bytes are in use; pending: %v", outcome, bytes, pending)
		}
		settled, released := len(pending.settle), len(pending.release)
		if settled+released != 1 || (settled == 1) != (outcome == forward.Confirmed) {
			t.Errorf("%s: settled %d times, released %d times", outcome, settled, released)
		}
	}
}
