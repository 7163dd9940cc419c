package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// bills is a second topic, whose messages are in the same queue as those for orders.
const bills = "bills"

func countedOf(c *running, topic string, became outcome) float64 {
	return testutil.ToFloat64(c.metrics.deliveries.WithLabelValues(topic, string(became)))
}

// makeBills creates the topic bills with one shard. No scanner serves it.
func (w *fixture) makeBills() *shard.Topic {
	w.t.Helper()
	w.makeOrders()
	store, err := shard.New(w.rdb, w.settings.RedisPrefix)
	check.OK(w.t, err)
	topic := store.Topic(bills)
	_, err = topic.Ensure(w.t.Context(), 1)
	check.OK(w.t, err)
	return topic
}

// makeOrders creates the topic orders with four shards, as serve does.
func (w *fixture) makeOrders() {
	w.t.Helper()
	_, err := w.topic.Ensure(w.t.Context(), 4)
	check.OK(w.t, err)
}

// deliver publishes n messages of a topic, as a scanner does.
func (w *fixture) deliver(topic string, n int) {
	w.t.Helper()
	for i := range n {
		at := time.Now().Truncate(time.Millisecond)
		w.publish(task.Task{Topic: topic, ID: fmt.Sprint(topic, i), Due: at, Scheduled: at, Attempt: 1})
	}
}

// failing succeeds for orders and fails for bills.
func (l *log) failing(_ context.Context, d task.Delivery) error {
	l.add(d)
	if d.Topic == bills {
		return errTest
	}
	return nil
}

// TestARemovedTopicHoldsUpNoOther: its failed deliveries can't be stored again. They are
// acked and counted, and logged once.
func TestARemovedTopicHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	topic := w.makeBills()
	_, err := admin.Removal{Topic: topic, Purge: true}.Run(t.Context())
	check.OK(w.t, err)
	var seen log
	var out check.Log
	began := time.Now()
	c := w.consume(Config{Concurrency: 2, Policy: Fixed(0, 5), Handler: seen.failing,
		Log: slog.New(slog.NewTextHandler(&out, nil))})
	const n, others = 12, 20
	w.deliver(bills, n)
	w.deliver(orders, others)
	check.Until(t, "deliveries of the other topic are done", func() bool { return countedOf(c, orders, done) == others })
	check.Until(t, "deliveries of the removed topic are counted", func() bool { return countedOf(c, bills, removed) == n })
	c.stop()
	if left := w.waiting(queue); left != 0 {
		t.Errorf("%d messages were left unanswered", left)
	}
	for i := range n {
		if got := seen.of(fmt.Sprint(bills, i)); got != 1 {
			t.Errorf("handled %d times", got)
		}
	}
	minutes := int(time.Since(began) / time.Minute) // whole minutes
	if got := strings.Count(out.String(), "topic was removed"); got < 1 || got > 1+minutes {
		t.Errorf("logged %d times", got)
	}
}

// troubles are faults of one topic alone, and their fixes.
func troubles() map[string]struct {
	begin, end func(w *fixture, topic *shard.Topic)
} {
	type row = struct {
		begin, end func(w *fixture, topic *shard.Topic)
	}
	tasks := func(w *fixture) string { return w.settings.RedisPrefix + ":task:{" + bills + ":0}" }
	return map[string]row{
		"a key of the wrong type": {
			func(w *fixture, _ *shard.Topic) {
				check.OK(w.t, w.rdb.Set(w.t.Context(), tasks(w), "no hash", 0).Err())
			},
			func(w *fixture, _ *shard.Topic) { check.OK(w.t, w.rdb.Del(w.t.Context(), tasks(w)).Err()) },
		},
		"a lost placement": {
			func(w *fixture, _ *shard.Topic) {
				check.OK(w.t, w.rdb.Del(w.t.Context(), w.settings.RedisPrefix+":placement:{"+bills+"}").Err())
			},
			func(w *fixture, topic *shard.Topic) {
				_, err := topic.Ensure(w.t.Context(), 1)
				check.OK(w.t, err)
			},
		},
	}
}

// TestOneTopicsTroubleHoldsUpNoOther: deliveries that Redis refuses to store wait. They
// are stored when Redis accepts them, and their handlers don't run again.
func TestOneTopicsTroubleHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, trouble := range troubles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			topic := w.makeBills()
			trouble.begin(w, topic)
			var seen log
			c := w.consume(Config{Concurrency: 1, Prefetch: 4, Policy: Fixed(time.Hour, 5), Handler: seen.failing})
			w.deliver(bills, 3)
			w.deliver(orders, 20)
			check.Until(t, "deliveries of the other topic are done", func() bool { return countedOf(c, orders, done) == 20 })
			trouble.end(w, topic)
			check.Until(t, "the others are stored", func() bool { return countedOf(c, bills, retried) == 3 })
			for i := range 3 {
				if n := seen.of(fmt.Sprint(bills, i)); n != 1 {
					t.Errorf("handled %d times", n)
				}
			}
		})
	}
}

// TestWhatCanNotBeStoredForLongIsRequeued, so its handler runs again.
func TestWhatCanNotBeStoredForLongIsRequeued(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	topic := w.makeBills()
	trouble := troubles()["a key of the wrong type"]
	trouble.begin(w, topic)
	var seen log
	c := w.consume(Config{Concurrency: 1, hold: time.Second, Policy: Fixed(time.Hour, 5), Handler: seen.failing})
	w.deliver(bills, 1)
	check.Until(t, "it is handled again", func() bool { return seen.of(bills+"0") > 2 })
	if countedOf(c, bills, requeued) < 2 {
		t.Errorf("requeued %v times", countedOf(c, bills, requeued))
	}
	trouble.end(w, topic)
	check.Until(t, "it is stored", func() bool { return countedOf(c, bills, retried) == 1 })
}

// TestWhatCanNotBeLookedUpHoldsUpNoOther, and its handler doesn't run before the lookup
// succeeds.
func TestWhatCanNotBeLookedUpHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.makeBills()
	past := w.settings.RedisPrefix + ":history:{" + bills + ":" + bills + "0}"
	check.OK(w.t, w.rdb.Set(t.Context(), past, "no hash", 0).Err())
	var running, most int
	var seen log
	c := w.consume(Config{Concurrency: 1, Handler: func(_ context.Context, d task.Delivery) error {
		running++ // without a lock: the race detector finds two at a time
		most = max(most, running)
		seen.add(d)
		running--
		return nil
	}})
	w.deliver(bills, 1)
	w.deliver(orders, 5)
	check.Until(t, "the others are done", func() bool { return countedOf(c, orders, done) == 5 })
	if seen.of(bills+"0") != 0 {
		t.Error("it was handled")
	}
	check.OK(w.t, w.rdb.Del(t.Context(), past).Err())
	check.Until(t, "it is done", func() bool { return countedOf(c, bills, done) == 1 })
	c.stop()
	if most != 1 {
		t.Errorf("%d handlers at once", most)
	}
}
