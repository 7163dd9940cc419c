package scanner

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/window"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
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

// TestWhatIsInFlightIsBoundedInBytes: all tasks are due at once, the broker confirms
// slowly, and the window would admit all of them.
func TestWhatIsInFlightIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": one("tick: 50ms")}, nil)
	topicsPart := l.budget.Window(0)
	if got := topicsPart.Own(); got != 64<<20/4 {
		t.Errorf("the part of a topic alone is of %d bytes, want a quarter of what in_flight_bytes is by default", got)
	}
	topicsPart.Close()
	const limit, payload, tasks = 1 << 20, 20 << 10, 60
	l.budget = window.NewBudget(limit)
	var mostBytes atomic.Int64 // in flight at a call to Redis
	faults.Before(l.rdb, func(faults.Request) {
		n := int64(l.budget.InUse())
		for most := mostBytes.Load(); n > most && !mostBytes.CompareAndSwap(most, n); most = mostBytes.Load() {
		}
	})
	faults.Toxic(t, l.bridge, "slow", "latency", "downstream", map[string]any{"latency": 100})
	l.start()
	topic := l.topic("orders")
	ids := fixture.Belonging(fixture.Placement(t, topic), 0, tasks)
	fixture.Store(t, topic, fixture.Entries(task.Now(), make([]byte, payload), ids...)...)
	check.Progress(t, "all to be delivered", func() int { return int(l.value("duefleet_forwarded_total")) }, l.empty)
	if most := int(mostBytes.Load()); most > limit/4 || most < payload {
		t.Errorf("%d bytes were in flight at a time, want at most a quarter of %d", most, limit)
	}
	check.Until(t, "all room to be given back", func() bool {
		held, bytes := l.served("orders").topic.window.InUse()
		return held == 0 && bytes == 0
	})
}

// TestEveryOutcomeFreesThePlaceOfItsTask: whatever the publisher answers, the task is
// settled or released once. Then its place and its bytes of the window are free. The
// compiler checks that a message's owner is one that does this.
func TestEveryOutcomeFreesThePlaceOfItsTask(t *testing.T) {
	t.Parallel()
	outcomes := []forward.Outcome{forward.Confirmed, forward.Returned, forward.Refused, forward.Unknown, forward.Unsent,
		forward.Overdue}
	for _, outcome := range outcomes {
		b := newHarness(t)
		topic := b.topic
		b.put(task.Now(), "a")
		place, err := topic.window.Reserve(t.Context(), 1)
		check.OK(t, err)
		batch, err := topic.store.Shard(0).Claim(t.Context(), b.newClaim(1))
		if err != nil || len(batch.Tasks) != 1 {
			t.Fatalf("claimed %d, %v", len(batch.Tasks), err)
		}
		c := &claim{polling: topic.polling, heard: time.Now(), batch: batch, settings: topic.inForce.Settings()}
		i := item{c, &batch.Tasks[0], window.Bytes(batch.Tasks)}
		topic.window.Keep(place, 1, i.bytes)
		topic.resolved([]forward.Result{{Message: &forward.Message{Task: i.claimed.Task, Owner: &i}, Outcome: outcome}})
		if held, bytes := topic.window.InUse(); held != 1 || bytes != 0 {
			t.Fatalf("%s: %d tasks are held, %d bytes are in use", outcome, held, bytes)
		}
		settling, end := context.WithCancel(t.Context())
		topic.settler.Start(settling)
		check.OK(t, topic.settler.Drain(check.Context(t)))
		end()
		topic.settler.Wait()
		stats, err := topic.store.Stats(t.Context(), 1)
		check.OK(t, err)
		held, _ := topic.window.InUse()
		if held != 0 || stats[0].Leased != 0 || (stats[0].Pending == 0) != (outcome == forward.Confirmed) {
			t.Errorf("%s: %d tasks are held, %+v", outcome, held, stats[0])
		}
	}
}
