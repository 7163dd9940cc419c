package scanner

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
)

// onTopic runs a scanner whose topic has one shard and some other settings.
func onTopic(t *testing.T, settings ...string) *lone {
	t.Helper()
	l := newLone(t, map[string]string{"orders": one(settings...)}, nil)
	l.start()
	return l
}

// one returns the document of a topic with one shard.
func one(settings ...string) string { return declaring("orders", append(settings, "shards: 1")...) }

// change puts other settings in force. It returns when nothing uses the old ones.
func (l *lone) change(settings ...string) {
	l.t.Helper()
	l.apply(settings...)
	l.ticks()
}

// ticks returns when a tick has begun and ended.
func (l *lone) ticks() {
	l.t.Helper()
	before := l.ended()
	check.Until(l.t, "a tick to begin and end", func() bool { return l.ended() >= before+3 })
}

// apply puts other settings in force.
func (l *lone) apply(settings ...string) {
	l.t.Helper()
	before := l.served("orders").topic.inForce.Settings()
	l.write(map[string]string{"orders": one(settings...)})
	check.Until(l.t, "the settings to be applied",
		func() bool { return l.served("orders").topic.inForce.Settings() != before })
}

// put stores n tasks that are due at once, all at the same time.
func (l *lone) put(n int) {
	l.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("o-", i)
	}
	fixture.Store(l.t, l.topic("orders"), fixture.Entries(task.Now(), []byte{0}, ids...)...)
}

// stats returns the counts of the only shard.
func (l *lone) stats() shard.Stats {
	l.t.Helper()
	all, err := l.topic("orders").Stats(l.t.Context(), 1)
	check.OK(l.t, err)
	return all[0]
}

func (l *lone) empty() bool { return l.stats().Pending == 0 }

// value returns the sum of a metric's series, or of a histogram's counts.
func (l *lone) value(name string) (total float64) {
	l.t.Helper()
	families, err := l.cfg.Registry.Gather()
	check.OK(l.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return total
}

// ended returns how many ticks have ended.
func (l *lone) ended() int { return int(l.value("duefleet_ticks_total")) }

func TestATickIsAppliedInTheMiddleOfOne(t *testing.T) {
	t.Parallel()
	l := onTopic(t, "tick: 1m")
	seconds := 40
	check.Until(t, "the tick to end", func() bool {
		if l.ended() > 0 {
			return true
		}
		seconds = 90 - seconds // the first change may have come before the tick began
		l.apply(fmt.Sprintf("tick: %ds", seconds))
		return false
	})
}

// TestATickGoesOnWhenItsShardsAreOthersToo: the others draw its shards only when it is over. But
// it ends at once when the settings want another number of workers.
func TestATickGoesOnWhenItsShardsAreOthersToo(t *testing.T) {
	t.Parallel()
	l := onTopic(t, "tick: 1m")
	l.put(1)
	check.Until(t, "the task to be delivered", l.empty)
	before := l.ended()
	_, err := l.store.Registry().Heartbeat(t.Context(), "another", time.Hour, 2*time.Hour)
	check.OK(l.t, err)
	l.apply("tick: 1m", "batch: 3")
	check.Until(t, "the other scanner to be heard of", func() bool { return l.heartbeat.State().Live == 2 })
	l.put(1)
	check.Until(t, "the task to be delivered", l.empty)
	if n := l.ended() - before; n != 0 {
		t.Errorf("%d ticks ended because another scanner joined", n)
	}
	l.apply("tick: 1m", "workers: 2")
	check.Until(t, "the tick to end", func() bool { return l.ended() > before })
}

func TestWorkersAreAppliedLive(t *testing.T) {
	t.Parallel()
	l := onTopic(t, "tick: 20ms", "workers: 1")
	for _, n := range []int{5, 2} {
		l.apply("tick: 20ms", fmt.Sprint("workers: ", n))
		check.Until(t, fmt.Sprint(n, " workers"), func() bool { return l.value("duefleet_workers") == float64(n) })
	}
}

func TestABatchIsAppliedLive(t *testing.T) {
	t.Parallel()
	l := onTopic(t, "tick: 20ms", "batch: 500")
	l.change("tick: 20ms", "batch: 3")
	l.apply("tick: 1m", "batch: 3") // so that few claims are empty
	claims := l.value("duefleet_claim_seconds")
	l.put(300)
	check.Until(t, "all to be delivered", l.empty)
	if n := l.value("duefleet_claim_seconds") - claims; n < 100 {
		t.Errorf("%v claims for 300 tasks, want 100 at least with batches of 3", n)
	}
}

// leases looks at what is leased before each request of the scanner.
type leases struct {
	rdb redis.UniversalClient
	due string // the only shard's

	mu    sync.Mutex
	most  int           // at one time
	until time.Duration // the longest time until a deadline
}

func (h *leases) look(faults.Request) {
	ctx := context.Background()
	leased, err := h.rdb.ZRangeByScoreWithScores(ctx, h.due, &redis.ZRangeBy{Min: "-inf", Max: "(0"}).Result()
	if err != nil || len(leased) == 0 {
		return
	}
	now, err := h.rdb.Time(ctx).Result()
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.most = max(h.most, len(leased))
	for _, z := range leased {
		h.until = max(h.until, time.UnixMilli(int64(-z.Score)).Sub(now))
	}
}

// seen is the most tasks leased at one time, and the longest lease, so far.
func (h *leases) seen() (most int, until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most, h.until
}

// lookingOn is onTopic with a look at the leases.
func lookingOn(t *testing.T, settings ...string) (*lone, *leases) {
	t.Helper()
	l := newLone(t, map[string]string{"orders": one(settings...)}, nil)
	rdb := fixture.Client(t, l.cfg.Settings.Redis.Addrs[0])
	looking := &leases{rdb: rdb, due: l.cfg.Settings.Redis.Prefix + ":due:{orders:0}"}
	faults.Before(l.rdb, looking.look)
	l.start()
	return l, looking
}

func TestAWindowIsAppliedLive(t *testing.T) {
	t.Parallel()
	l, looking := lookingOn(t, "tick: 20ms")
	l.change("tick: 20ms", "window: 2")
	l.put(300)
	check.Until(t, "all to be delivered", l.empty)
	if most, _ := looking.seen(); most < 1 || most > 4 {
		t.Errorf("%d tasks were in flight at a time, want 1 to 4", most)
	}
}

func TestALeaseIsAppliedLive(t *testing.T) {
	t.Parallel()
	l, looking := lookingOn(t, "tick: 20ms", "lease: 30s")
	l.change("tick: 20ms", "lease: 1h")
	l.put(300)
	check.Until(t, "all to be delivered", l.empty)
	if _, until := looking.seen(); until < 30*time.Minute {
		t.Errorf("leases of %s, want an hour", until)
	}
}

func TestARateIsAppliedLive(t *testing.T) {
	t.Parallel()
	l := onTopic(t, "tick: 20ms", "rate: 0")
	l.change("tick: 20ms", "rate: 50")
	before := l.stats().Now
	l.put(100)
	check.Until(t, "all to be delivered", l.empty)
	if took := l.stats().Now.Sub(before); took < 1900*time.Millisecond {
		t.Errorf("100 tasks took %s, want 2s at 50 a second, but for a burst of 2", took)
	}
}

// attempts returns how often the only task, which no queue takes, was tried.
func (l *lone) attempts() int {
	l.t.Helper()
	p, err := l.topic("orders").Placement(l.t.Context())
	check.OK(l.t, err)
	stored, err := l.topic("orders").Shard(0).Read(l.t.Context(), p, "o-0")
	check.OK(l.t, err)
	return stored.Attempt - 1
}

// TestAThousandParkedTasksWriteFewLines: all of them are counted. The log names one of
// them at once, and another one each minute.
func TestAThousandParkedTasksWriteFewLines(t *testing.T) {
	t.Parallel()
	const n = shard.MaxBatch
	l := newLone(t, unroutable("max_attempts: 1"), nil)
	ch, err := l.broker().Channel()
	check.OK(l.t, err)
	check.OK(l.t, ch.ExchangeDeclare("nowhere", "direct", true, false, false, false, nil))
	l.start()
	l.put(n)
	check.Count(t, "parked tasks", n, func() int { return int(l.stats().Parked) })
	for _, text := range []string{"task parked", "level=ERROR", "level=WARN"} {
		if lines := l.said.Lines(text); len(lines) > n/100 {
			t.Errorf("%d lines with %q, as in %s", len(lines), text, lines[0])
		}
	}
	if lines := l.said.Lines("task parked"); len(lines) == 0 {
		t.Error("none of them is named")
	}
}

// unroutable returns the document of a topic whose exchange has no queue, with one more
// setting.
func unroutable(setting string) map[string]string {
	return map[string]string{"orders": "{shards: 1, exchange: nowhere, tick: 20ms, " + setting + "}"}
}

// retrying runs a scanner whose only task no queue takes, and which tries it again and
// again.
func retrying(t *testing.T) *lone {
	t.Helper()
	l := newLone(t, unroutable("max_attempts: 1000, backoff: {min: 50ms, max: 50ms}"), nil)
	ch, err := l.broker().Channel()
	check.OK(l.t, err)
	check.OK(l.t, ch.ExchangeDeclare("nowhere", "direct", true, false, false, false, nil))
	l.start()
	l.put(1)
	check.Count(t, "attempts", 2, l.attempts)
	return l
}

func TestMaxAttemptsAreAppliedLive(t *testing.T) {
	t.Parallel()
	l := retrying(t)
	l.write(unroutable("max_attempts: 2, backoff: {min: 50ms, max: 50ms}"))
	check.Progress(t, "the task to be parked", l.attempts, func() bool { return l.stats().Parked == 1 })
	if n := l.attempts(); n >= 1000 {
		t.Errorf("parked after %d attempts, as many as were allowed before", n)
	}
}

func TestABackoffIsAppliedLive(t *testing.T) {
	t.Parallel()
	l := retrying(t)
	l.write(unroutable("max_attempts: 1000, backoff: {min: 24h, max: 24h}"))
	check.Progress(t, "the task to rest for long", l.attempts, func() bool {
		s := l.stats()
		return s.Oldest.Sub(s.Now) > time.Hour
	})
}
