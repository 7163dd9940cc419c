package scanner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
)

// Claims of one scanner have one name. Tasks that one of them claimed are in flight when the next
// is sent.
func TestAClaimFindsNothingThatIsInFlight(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	claimed := map[string]int{}
	for _, id := range []string{"a", "b"} {
		b.put(task.Now(), id)
		one := &claim{polling: b.topic.polling, request: b.newClaim(10)}
		one.send(t.Context(), 0, time.Now())
		check.OK(t, one.err)
		for _, c := range one.batch.Tasks {
			claimed[c.ID]++
		}
	}
	if claimed["a"] != 1 || claimed["b"] != 1 {
		t.Errorf("claimed %v, want each task once", claimed)
	}
}

// TestAClaimAsksForWhatItIsLikelyToFind: unused reservations keep others from claiming.
// A backlog is claimed in full batches.
func TestAClaimAsksForWhatItIsLikelyToFind(t *testing.T) {
	t.Parallel()
	const most = 400
	w := &polling{topic: &topic{}}
	for i, step := range []struct{ found, asks int }{{400, 400}, {1, 50}, {0, 50}, {50, 200}, {200, 400}, {400, 400},
		{60, 120}} {
		asked := w.batch(most)
		w.found(step.found, asked)
		if got := w.batch(most); got != step.asks {
			t.Errorf("step %d: after a claim that found %d of %d it asks for %d, want %d", i, step.found, asked, got, step.asks)
		}
	}
}

// many is a shard count with more shards than claims at a time.
const many = 3*balance.MostWorkers + 1

// ofMany runs a scanner with many shards and some other settings.
func ofMany(t *testing.T, settings ...string) *lone {
	t.Helper()
	l := newLone(t, map[string]string{"orders": declaring("orders", append(settings, fmt.Sprint("shards: ", many))...)},
		nil)
	l.start()
	return l
}

// pollsAll reports whether each shard was claimed from.
func (l *lone) pollsAll() bool {
	health := l.served("orders").topic.health
	for at := range many {
		if worked, _ := health.lastClaim(at); !worked {
			return false
		}
	}
	return true
}

// forwards waits until n tasks have been forwarded.
func (l *lone) forwards(n int) {
	l.t.Helper()
	check.Count(l.t, "tasks", n, func() int { return int(l.value("duefleet_forwarded_total")) })
}

// TestManyShardsArePolled: all of them at the same time, with few claims at a time. So a task
// leaves at once in any shard, although a tick lasts for ten seconds.
func TestManyShardsArePolled(t *testing.T) {
	t.Parallel()
	l := ofMany(t, "tick: 10s")
	check.Until(t, "all shards to be polled", l.pollsAll)
	if n := l.value("duefleet_workers"); n > balance.MostWorkers {
		t.Errorf("%v claims at a time for %d shards, want at most %d", n, many, balance.MostWorkers)
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
		check.OK(l.t, err)
		for _, c := range all {
			if c {
				n++
			}
		}
		return n
	}
	var p shard.Placement
	check.Progress(t, "the change to end", clean, func() bool {
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

// TestAnIdleTopicClaimsNothing: it looks at its shards in each tick. It reserves and
// claims only when something is due.
func TestAnIdleTopicClaimsNothing(t *testing.T) {
	t.Parallel()
	l := ofMany(t, "tick: 50ms")
	orders := l.served("orders").topic
	check.Until(t, "a claim from each shard", l.pollsAll)
	l.ticks()
	claims := l.value("duefleet_claim_seconds")
	l.ticks()
	if n := l.value("duefleet_claim_seconds") - claims; n != 0 {
		t.Errorf("%v claims though nothing is due", n)
	}
	if n, _ := orders.window.InUse(); n != 0 {
		t.Errorf("%d places of the window are taken though nothing is due", n)
	}
	l.spread(1, 5)
	l.forwards(1)
}

// TestAShardThatFailsHoldsUpNoOther: one of four shards can't be claimed from.
func TestAShardThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 4", "workers: 4", "tick: 1m", "lease: 1h")},
		nil)
	l.start()
	fix := l.spoil(2)
	const n = 20
	for round := range 5 {
		l.spread(n, 0, 1, 3)
		l.forwards(3 * n * (round + 1))
	}
	check.Until(t, "claims of the shard to fail", func() bool { return l.value("duefleet_shard_errors_total") >= 5 })
	fix()
	l.spread(n, 2)
	l.forwards(16 * n)
}

// TestAShardWhoseClaimHangsHoldsUpNoOther: the others are claimed from
// meanwhile, and they get the claim's room in the window. Tasks that the claim finds in
// the end are forwarded.
func TestAShardWhoseClaimHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "shards: 4", "workers: 4", "tick: 1m", "lease: 1h",
		"window: 8")}, nil)
	l.start()
	l.spread(1, 0, 1, 2, 3)
	l.forwards(4)
	orders := l.served("orders").topic
	held := func() int { n, _ := orders.window.InUse(); return n }
	check.Until(t, "all to be settled", func() bool { return held() == 0 })
	caught, letGo := faults.Hang(t, l.rdb, "{orders:2}")
	orders.poller.Hear(2, 0) // as if there were a new task
	check.Receive(t, "the claim that hangs", caught)
	const n = 20
	for round := range 5 {
		l.spread(n, 0, 1, 3)
		l.forwards(4 + 3*n*(round+1))
	}
	check.Until(t, "no room to be taken", func() bool { return held() == 0 })
	letGo()
	l.spread(n, 2)
	l.forwards(4 + 16*n)
	check.Until(t, "all room to be given back", func() bool { return held() == 0 })
}

// TestADrawOfAnotherPlacementIsLookedInto: an older one than the known one, or none. The known one
// isn't read in addition to the draws.
func TestADrawOfAnotherPlacementIsLookedInto(t *testing.T) {
	t.Parallel()
	orders := newHarness(t).topic
	known := shard.Placement{Epoch: 5, Shards: 4, Previous: 4, Phase: shard.Stable}
	orders.polling.Drawn(known)
	learned := orders.inForce.Changed.Fires()
	orders.polling.Drawn(known)
	if orders.inForce.Changed.Fires() != learned {
		t.Error("the known placement is looked into")
	}
	orders.polling.Drawn(shard.Placement{Epoch: 3, Shards: 2, Previous: 2, Phase: shard.Stable})
	if orders.inForce.Changed.Fires() != learned+1 {
		t.Error("an older placement isn't looked into")
	}
	orders.polling.Fails(t.Context(), "", "draw", task.ErrUnknownTopic)
	if orders.inForce.Changed.Fires() != learned+2 {
		t.Error("a topic without a placement isn't looked into")
	}
}

// draws reports whether a command is a draw that Redis carried out: a script whose first key
// counts tickets.
func draws(cmd redis.Cmder) bool {
	return cmd.Name() == "evalsha" && strings.Contains(fmt.Sprint(cmd.Args()[3]), ":ticket:") && cmd.Err() == nil
}

// TestADrawWhoseReplyWasLostLeavesNoShardAlone: the next draws name its shards, too.
func TestADrawWhoseReplyWasLostLeavesNoShardAlone(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "tick: 200ms", fmt.Sprint("shards: ", many))}, nil)
	l.quiet = time.Hour // a topic that sleeps draws nothing
	lost := faults.Lose(l.rdb, 2*balance.MostWorkers, draws)
	l.start()
	check.Until(t, "replies to be lost", lost)
	check.Until(t, "all shards to be polled", l.pollsAll)
}
