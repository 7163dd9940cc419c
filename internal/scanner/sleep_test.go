package scanner

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// drowsy is a scanner whose topic falls asleep soon.
func drowsy(t *testing.T) *lone {
	t.Helper()
	l := newLone(t, map[string]string{"orders": declaring("orders", "tick: 20ms", "shards: 4")}, nil)
	l.quiet = 50 * time.Millisecond
	l.start()
	return l
}

// sleeps waits until the topic sleeps, and no worker is left.
func (l *lone) sleeps() *topic {
	l.t.Helper()
	orders := l.served("orders").topic
	check.Until(l.t, "the topic to sleep", func() bool { return orders.asleep() && l.value("duefleet_workers") == 0 })
	return orders
}

// later stores a task of a shard that is due in a while.
func (l *lone) later(in time.Duration) {
	l.t.Helper()
	fixture.Store(l.t, l.topic("orders"), shard.Entry{ID: "later", When: task.In(in), Body: []byte{0}})
}

// TestASleepingTopicWakes, when a task comes that is due, and before a task is due.
func TestASleepingTopicWakes(t *testing.T) {
	t.Parallel()
	l := drowsy(t)
	l.sleeps()
	l.spread(1, 0, 1, 2, 3)
	l.forwards(4)
	l.sleeps()
	l.later(aheadLeast + 500*time.Millisecond)
	l.forwards(5)
	if late := l.value("duefleet_lateness_seconds_sum"); late > 1 { // in all five; an overslept one is later
		t.Errorf("late by %v s in all", late)
	}
	l.sleeps()
	l.later(time.Hour)
	l.sleeps()
}

// TestTheFleetLearnsThePlacementOfASleepingTopic: it is read although no message says that it
// changed. One that Redis lost is made again.
func TestTheFleetLearnsThePlacementOfASleepingTopic(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "tick: 20ms", "shards: 4")}, nil)
	l.quiet, l.sleepers.reads = 50*time.Millisecond, 100*time.Millisecond
	l.start()
	orders := l.sleeps()
	key := l.cfg.Settings.Redis.Prefix + ":placement:{orders}"
	known, _ := orders.resharder.Known()
	other := shard.Placement{Epoch: known.Epoch + 2, Shards: 8, Previous: 8, Phase: shard.Stable}
	check.OK(l.t, l.rdb.HSet(t.Context(), key, "value", other.String()).Err())
	check.Until(t, "it to be known", func() bool { p, _ := orders.resharder.Known(); return p == other })
	l.sleeps()
	check.OK(l.t, l.rdb.Del(t.Context(), key).Err())
	check.Until(t, "a placement", func() bool { return l.rdb.Exists(t.Context(), key).Val() == 1 })
}

// startsAsleep makes the scanner's topics start asleep, as if it had many.
func (l *lone) startsAsleep() { l.begun.Store(startAwake) }

// looked reports whether a look at the topic has ended.
func (t *topic) looked() bool {
	t.sleep.mu.Lock()
	defer t.sleep.mu.Unlock()
	return !t.sleep.starts
}

// TestATopicThatStartsAsleepWakes soon after the start, if a task is due, and later when one
// comes. Without tasks it sleeps from the start.
func TestATopicThatStartsAsleepWakes(t *testing.T) {
	t.Parallel()
	for _, before := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d tasks in each shard", before), func(t *testing.T) {
			t.Parallel()
			l := newLone(t, map[string]string{"orders": declaring("orders", "tick: 20ms", "shards: 4")}, nil)
			l.startsAsleep()
			_, err := l.topic("orders").Ensure(t.Context(), 4)
			check.OK(t, err)
			l.spread(before, 0, 1, 2, 3)
			l.start()
			orders := l.served("orders").topic
			if before == 0 {
				check.Until(t, "the first look", orders.looked)
				check.Equal(t, "asleep", orders.asleep(), true)
			}
			l.forwards(4 * before)
			l.spread(1, 0, 1, 2, 3)
			l.forwards(4*before + 4)
		})
	}
}

// TestATopicThatHearsNothingDoesNotSleep: without the right to subscribe, nobody would tell it
// about tasks.
func TestATopicThatHearsNothingDoesNotSleep(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "tick: 20ms", "shards: 4")}, nil)
	prefix, options := l.cfg.Settings.Redis.Prefix, *l.rdb.(*redis.Client).Options()
	check.OK(l.t, l.rdb.Do(t.Context(), "ACL", "SETUSER", prefix, "on", ">secret", "~*", "&*", "+@all",
		"-ssubscribe").Err())
	t.Cleanup(func() { _ = l.rdb.Do(context.Background(), "ACL", "DELUSER", prefix).Err() })
	options.Username, options.Password = prefix, "secret"
	deaf := redis.NewClient(&options)
	t.Cleanup(func() { _ = deaf.Close() })
	cfg := l.cfg
	cfg.Store = storeOf(t, deaf, prefix)
	cfg.Moving, cfg.Registry = nil, nil
	var err error
	l.Scanner, err = New(cfg)
	check.OK(l.t, err)
	l.startsAsleep()
	l.quiet = 50 * time.Millisecond
	l.start()
	check.Until(t, "the topic to poll", func() bool { return l.value("duefleet_workers") > 0 })
}

// TestABrokenSubscriptionMakesASleepingTopicLook: the message about a task is lost with it.
func TestABrokenSubscriptionMakesASleepingTopicLook(t *testing.T) {
	t.Parallel()
	l := drowsy(t)
	orders := l.sleeps()
	before, _ := orders.listening.Heard()
	l.later(time.Hour)
	check.Until(t, "the task to be heard of", func() bool { return l.knows(orders) })
	l.forgets(orders)
	check.OK(l.t, l.rdb.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
	check.Until(t, "the topic to look again", func() bool {
		now, _ := orders.listening.Heard()
		return now != before && l.knows(orders)
	})
}

// knows reports whether the topic knows of a task.
func (l *lone) knows(t *topic) bool {
	t.sleep.mu.Lock()
	defer t.sleep.mu.Unlock()
	return t.sleep.next != never
}

// forgets makes the topic know of no task, as if its message had been lost.
func (l *lone) forgets(t *topic) {
	t.sleep.mu.Lock()
	defer t.sleep.mu.Unlock()
	t.sleep.next = never
}

// TestALookComesNoLaterThanItsTime: guarantees name it as the most that a lost wake-up costs. Looks
// differ, so that topics aren't looked at together.
func TestALookComesNoLaterThanItsTime(t *testing.T) {
	t.Parallel()
	orders := drowsy(t).sleeps()
	waits := map[time.Duration]bool{}
	for i := range 100 {
		now := time.Now().Add(time.Duration(i+1) * time.Hour)
		check.Equal(t, "a look begins", orders.beginLook(now, netMost), true)
		orders.sleep.mu.Lock()
		wait := orders.sleep.again.Sub(now)
		orders.sleep.mu.Unlock()
		if waits[wait] = true; wait > netMost || wait < netMost*3/4 {
			t.Fatalf("the next look is after %v, want at most %v and not much less", wait, netMost)
		}
	}
	if len(waits) < 50 {
		t.Errorf("100 looks have %d different waits", len(waits))
	}
}

// TestALostWakeUpIsMadeUpFor: a look that finds a task wakes the topic. If nobody heard about
// the task, it names the shard, so that the other scanners are woken too.
func TestALostWakeUpIsMadeUpFor(t *testing.T) {
	t.Parallel()
	soon, later := shard.Head{Due: time.Now().Add(time.Second)}, shard.Head{Due: time.Now().Add(time.Hour)}
	for _, c := range []struct {
		name   string
		heads  []shard.Head
		hears  int64 // a score, during the look
		asleep bool
		lost   []int
	}{
		{"nothing stored", make([]shard.Head, 4), never, true, nil},
		{"a task is due later", []shard.Head{{}, later, {}, {}}, never, true, nil},
		{"tasks are due soon", []shard.Head{{}, soon, {}, soon}, never, false, []int{1, 3}},
		{"a task is due soon, and was heard of", []shard.Head{{}, soon, {}, {}}, soon.Due.UnixMilli(), false, nil},
		{"a task is leased", []shard.Head{{}, {}, {Leased: true}, {}}, never, false, []int{2}},
		{"a shard can't be read", []shard.Head{{}, {}, {}, {Err: task.ErrNotFound}}, never, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := drowsy(t)
			orders := l.sleeps()
			orders.hear(0, c.hears)
			lost := orders.endLook(c.heads)
			if !slices.Equal(lost, c.lost) || orders.asleep() != c.asleep {
				t.Errorf("lost %v, asleep: %v; want %v, %v", lost, orders.asleep(), c.lost, c.asleep)
			}
		})
	}
}
