package scanner

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/wait"
)

// A tick that was cut short is followed by its rest, so that workers keep their rhythm. A
// tick that is late, or whose length has changed, begins a new rhythm.
func TestNextEnd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct{ end, tick, want time.Duration }{
		"in time":                 {0, time.Second, time.Second},
		"a little late":           {-10 * time.Millisecond, time.Second, 990 * time.Millisecond},
		"later than a tick":       {-1500 * time.Millisecond, time.Second, time.Second},
		"cut short":               {300 * time.Millisecond, time.Second, 300 * time.Millisecond},
		"cut short, shorter now":  {30 * time.Second, time.Second, time.Second},
		"cut short, longer now":   {300 * time.Millisecond, time.Minute, 300 * time.Millisecond},
		"exactly a tick too late": {-time.Second, time.Second, time.Second},
	} {
		if got := nextEnd(now.Add(c.end), now, c.tick).Sub(now); got != c.want {
			t.Errorf("%s: the tick ends in %s, want %s", name, got, c.want)
		}
	}
}

// A topic that needs fewer workers for a while later starts a worker with the same name
// again. Tasks that the first one claimed are still in flight then.
func TestAWorkerStartedAgainClaimsNothingThatIsInFlight(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	claimed := map[string]int{}
	for _, id := range []string{"a", "b"} {
		b.put(task.Now(), id)
		w := b.topic.newWorker(0)
		batch, err := w.retryUntil(t.Context(), 0, w.newClaim(t.Context(), room{tasks: 10, bytes: claimBytes}, time.Hour),
			time.Now())
		check.OK(t, err)
		for _, c := range batch.Tasks {
			claimed[c.ID]++
		}
	}
	if claimed["a"] != 1 || claimed["b"] != 1 {
		t.Errorf("claimed %v, want each task once", claimed)
	}
}

// TestAWorkerAsksForWhatItIsLikelyToFind: unused reservations keep others from claiming.
// A backlog is claimed in full batches.
func TestAWorkerAsksForWhatItIsLikelyToFind(t *testing.T) {
	t.Parallel()
	const most = 400
	w := &worker{}
	for i, step := range []struct{ found, asks int }{{400, 400}, {1, 50}, {0, 50}, {50, 200}, {200, 400}, {400, 400},
		{60, 120}} {
		asked := w.batch(most)
		w.found(step.found, asked)
		if got := w.batch(most); got != step.asks {
			t.Errorf("step %d: after a claim that found %d of %d it asks for %d, want %d", i, step.found, asked, got, step.asks)
		}
	}
}

// many is a shard count with which each worker polls several shards.
const many = 3*balance.MostWorkers + 1

// ofMany runs a scanner with many shards and some other settings.
func ofMany(t *testing.T, settings ...string) *lone {
	t.Helper()
	l := newLone(t, map[string]string{"orders": declaring("orders", append(settings, fmt.Sprint("shards: ", many))...)},
		nil)
	l.start()
	return l
}

// pollsAll reports whether each shard has a worker now.
func (l *lone) pollsAll() bool {
	w := l.served("orders").topic.waiters
	w.mu.Lock()
	defer w.mu.Unlock()
	polledShard := map[int]bool{}
	for one := range w.all {
		maps.Copy(polledShard, one.polls)
	}
	return len(polledShard) == many
}

// forwards waits until n tasks have been forwarded.
func (l *lone) forwards(n int) {
	l.t.Helper()
	wait.Count(l.t, "tasks", n, func() int { return int(l.value("duefleet_forwarded_total")) })
}

// TestFewWorkersPollManyShards: all of them at the same time, as one worker per shard
// would. So a task leaves at once in any shard, although a tick lasts for ten seconds.
func TestFewWorkersPollManyShards(t *testing.T) {
	t.Parallel()
	l := ofMany(t, "tick: 10s")
	wait.For(t, "all shards to be polled", l.pollsAll)
	if n := l.value("duefleet_workers"); n > balance.MostWorkers {
		t.Errorf("%v workers for %d shards, want at most %d", n, many, balance.MostWorkers)
	}
	const rounds = 3
	for round := range rounds {
		all := make([]int, many)
		for i := range all {
			all[i] = i
		}
		l.spread(1, all...)
		l.forwards((round + 1) * many)
	}
}

// TestAnIdleTopicHasOneWorker, which polls all shards, so that a task leaves at once although
// a tick lasts for ten seconds. The first tasks start the others, and they leave again.
func TestAnIdleTopicHasOneWorker(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "tick: 10s", "shards: 4")}, nil)
	l.quiet = time.Minute
	l.start()
	workers := func(want float64) {
		t.Helper()
		wait.For(t, fmt.Sprint(want, " workers"), func() bool { return l.value("duefleet_workers") == want })
	}
	workers(1)
	l.spread(1, 0, 1, 2, 3)
	l.forwards(4)
	workers(5)
	long := time.Now().Add(-2 * time.Minute)
	l.served("orders").topic.claimed.Store(&long)
	l.write(map[string]string{"orders": declaring("orders", "tick: 20ms", "shards: 4")})
	workers(1)
	l.spread(1, 0, 1, 2, 3)
	l.forwards(8)
}

// TestManyShardsChange: each shard gets a mover. The change ends with every task in its
// place.
func TestManyShardsChange(t *testing.T) {
	t.Parallel()
	const fewer = many - 20
	l := ofMany(t, "tick: 100ms")
	topic := l.topic("orders")
	const tasks = 4 * many
	var entries []shard.Entry
	for i := range tasks {
		entries = append(entries, shard.Entry{ID: fmt.Sprint("o-", i), When: task.In(time.Hour), Body: []byte{0}})
	}
	fixture.Store(t, topic, entries...)
	l.write(map[string]string{"orders": declaring("orders", "tick: 100ms", fmt.Sprint("shards: ", fewer))})
	clean := func() (n int) {
		all, err := topic.Clean(t.Context(), fixture.Placement(t, topic))
		l.ok(err)
		for _, c := range all {
			if c {
				n++
			}
		}
		return n
	}
	var p shard.Placement
	wait.Progress(t, "the change to end", clean, func() bool {
		p = fixture.Placement(t, topic)
		return p.Phase == shard.Stable && p.Shards == fewer
	})
	for i := range tasks {
		id := fmt.Sprint("o-", i)
		if _, err := topic.Shard(p.New(id)).Read(t.Context(), p, id); err != nil {
			t.Errorf("task %s is not in its place: %v", id, err)
		}
	}
}

// TestAnIdleWorkerClaimsNothing: it looks at its shards in each tick. It reserves and
// claims only when something is due.
func TestAnIdleWorkerClaimsNothing(t *testing.T) {
	t.Parallel()
	l := ofMany(t, "tick: 50ms")
	orders := l.served("orders").topic
	wait.For(t, "a claim from each shard", func() bool {
		for at := range many {
			if !orders.health.lastClaimWorked(at) {
				return false
			}
		}
		return true
	})
	l.ticks()
	claims := l.value("duefleet_claim_seconds")
	l.ticks()
	if n := l.value("duefleet_claim_seconds") - claims; n != 0 {
		t.Errorf("%v claims though nothing is due", n)
	}
	if n, _ := orders.window.inUse(); n != 0 {
		t.Errorf("%d places of the window are taken though nothing is due", n)
	}
	l.spread(1, 5)
	l.forwards(1)
}

// TestAShardThatFailsHoldsUpNoneOfItsWorker: one worker polls four shards for an hour,
// and one of them can't be claimed from.
func TestAShardThatFailsHoldsUpNoneOfItsWorker(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 4", "workers: 1", "tick: 1m", "lease: 1h")},
		nil)
	l.start()
	l.polling(0, 0, 1, 2, 3)
	fix := l.spoil(2)
	const n = 20
	for round := range 5 {
		l.spread(n, 0, 1, 3)
		l.forwards(3 * n * (round + 1))
	}
	wait.For(t, "claims of the shard to fail", func() bool { return l.value("duefleet_shard_errors_total") >= 5 })
	fix()
	l.spread(n, 2)
	l.forwards(16 * n)
}

// TestAShardWhoseClaimHangsHoldsUpNoneOfItsWorker: the worker claims from the others
// meanwhile, and they get the claim's room in the window. Tasks that the claim finds in
// the end are forwarded.
func TestAShardWhoseClaimHangsHoldsUpNoneOfItsWorker(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 4", "workers: 1", "tick: 1m", "lease: 1h",
		"window: 8")}, nil)
	l.start()
	l.polling(0, 0, 1, 2, 3)
	l.spread(1, 0, 1, 2, 3)
	l.forwards(4)
	orders := l.served("orders").topic
	held := func() int { n, _ := orders.window.inUse(); return n }
	wait.For(t, "all to be settled", func() bool { return held() == 0 })
	h, letGo := hang(t, l.rdb, 2)
	orders.waiters.notify(2, 0) // as if there were a new task
	wait.Receive(t, "the claim that hangs", h.caught)
	const n = 20
	for round := range 5 {
		l.spread(n, 0, 1, 3)
		l.forwards(4 + 3*n*(round+1))
	}
	wait.For(t, "no room to be taken", func() bool { return held() == 0 })
	letGo()
	l.spread(n, 2)
	l.forwards(4 + 16*n)
	wait.For(t, "all room to be given back", func() bool { return held() == 0 })
}

// draws reports whether a command is a draw: a script with two keys and one argument,
// loaded in Redis.
func draws(cmd redis.Cmder) bool {
	return cmd.Name() == "evalsha" && len(cmd.Args()) == 6 && cmd.Err() == nil
}

// TestADrawWhoseReplyWasLostLeavesNoShardAlone: the workers that draw next poll the
// shards of the lost draw.
func TestADrawWhoseReplyWasLostLeavesNoShardAlone(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "tick: 200ms", fmt.Sprint("shards: ", many))}, nil)
	l.quiet = time.Hour // a topic that sleeps draws nothing
	lost := faults.Lose(l.rdb, 2*balance.MostWorkers, draws)
	l.start()
	wait.For(t, "replies to be lost", lost)
	wait.For(t, "all shards to be polled", l.pollsAll)
}
