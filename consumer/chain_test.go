package consumer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// leastApart returns the shortest time between the due times of two successive
// deliveries, by Redis's clock.
func leastApart(all []task.Delivery) time.Duration {
	least := never
	for i := range all[1:] {
		least = min(least, all[i+1].Due.Sub(all[i].Due))
	}
	return least
}

// TestAChainThatAsksForNoDelayDoesNotRunAsFastAsItCan: each step is due MinStep after the
// one before.
func TestAChainThatAsksForNoDelayDoesNotRunAsFastAsItCan(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	var seen log
	w.consume(Config{Handler: func(_ context.Context, d task.Delivery) error {
		seen.add(d)
		return d.Next(time.Now().Add(-time.Hour), nil)
	}})
	w.schedule("a", "")
	check.Until(t, "some steps", func() bool { return seen.of("a") > 5 })
	if least := leastApart(seen.all()); least < 100*time.Millisecond {
		t.Errorf("a step is due %v after the one before", least)
	}
}

// behind returns a time one hour behind the clock.
func behind() time.Time { return time.Now().Add(-time.Hour) }

// TestANextStepOfAConsumerWhoseClockIsBehindIsNotEarly: a step in five minutes is due in
// five minutes by Redis's clock.
func TestANextStepOfAConsumerWhoseClockIsBehindIsNotEarly(t *testing.T) {
	t.Parallel()
	const wanted = 5 * time.Minute
	for name, next := range map[string]func(d task.Delivery) error{
		"an instant of its clock": func(d task.Delivery) error { return d.Next(behind().Add(wanted), nil) },
		"a time from now":         func(d task.Delivery) error { return d.NextWhen(task.In(wanted), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t).serve()
			c := w.consume(Config{now: behind, Handler: func(_ context.Context, d task.Delivery) error { return next(d) }})
			began := w.redisNow()
			w.schedule("a", "")
			check.Until(t, "the step is stored", func() bool { return counted(c, done) == 1 })
			s, there := w.stored("a")
			// The two readings of the handler's clock are some ms apart.
			if early := began.Add(wanted).Sub(s.Due); !there || early > 10*time.Millisecond && name == "a time from now" ||
				early > wanted/2 || s.Due.After(w.redisNow().Add(wanted)) {
				t.Errorf("stored %v, due %v early", there, early)
			}
		})
	}
}

func (w *fixture) redisNow() time.Time { return servertest.RedisNow(w.t, w.rdb) }

// TestAStepIsDueByTheLaterClock: a due time of the handler's clock is read by Redis's
// clock, and as the time left by the consumer's clock. The later counts.
func TestAStepIsDueByTheLaterClock(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1796119200000)
	minute := time.Minute.Milliseconds()
	for name, row := range map[string]struct {
		here time.Duration // the consumer's clock, from Redis's
		f    following
		want int64 // ms from Redis's now
	}{
		"a retry":         {0, following{when: task.In(time.Minute)}, minute},
		"a retry at once": {0, following{when: task.In(0)}, 0},
		"a step in a while": {-time.Hour, following{when: task.In(time.Minute), least: 100 * time.Millisecond},
			minute},
		"a step now":                  {0, following{when: task.Now(), least: 100 * time.Millisecond}, 100},
		"a step now, without a least": {0, following{when: task.Now(), least: -1}, 0},
		"an instant":                  {-time.Hour, following{when: task.At(now.Add(time.Minute))}, minute},
		"the consumer's, clocks agree": {0, following{when: task.At(now.Add(time.Minute)), local: now.Add(time.Minute)},
			minute},
		"the consumer's, it is behind": {-time.Hour, following{when: task.At(now.Add(time.Minute - time.Hour)),
			local: now.Add(time.Minute - time.Hour)}, minute},
		"the consumer's, it is ahead": {time.Hour, following{when: task.At(now.Add(time.Minute + time.Hour)),
			local: now.Add(time.Minute + time.Hour)}, 61 * minute},
		"the consumer's, past by both": {-time.Hour, following{when: task.At(now.Add(-2 * time.Hour)),
			local: now.Add(-2 * time.Hour)}, 0},
		"the consumer's, past by Redis's": {-time.Hour, following{when: task.At(now), local: now}, 60 * minute},
	} {
		if got := row.f.due(now.UnixMilli(), now.Add(row.here)) - now.UnixMilli(); got != row.want {
			t.Errorf("%s: due in %d ms, want %d", name, got, row.want)
		}
	}
}

// TestANextStepWithoutATimeIsRefused: a forgotten time doesn't mean now.
func TestANextStepWithoutATimeIsRefused(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	refused := make(chan error, 2)
	w.consume(Config{Handler: func(_ context.Context, d task.Delivery) error {
		refused <- d.Next(time.Time{}, nil)
		refused <- d.NextWhen(task.When{}, nil)
		return nil
	}})
	w.schedule("a", "")
	for range 2 {
		var rule *task.RuleError
		if err := check.Receive(t, "the handler asked for a step", refused); !errors.As(err, &rule) || rule.Field != "due" {
			t.Errorf("got %v", err)
		}
	}
}

// TestStepsOfTwoVersionsAtOneTime: the handlers of two versions ask for a next step at the
// same time. The older version's step is stored after the newer version is delivered. Only
// the newer version's step is handled.
func TestStepsOfTwoVersionsAtOneTime(t *testing.T) {
	t.Parallel()
	w := newFixture(t).serve()
	at := time.Now().Add(5 * time.Second)
	allowed, release, newBegan, oldStored := make(chan bool), make(chan bool), make(chan bool), make(chan bool)
	var first, second sync.Once
	var seen log
	c := w.consume(Config{
		Concurrency: 2,
		step: func(s step) {
			switch s {
			case stepAllowed:
				first.Do(func() { close(allowed); <-release })
			case stepStored:
				second.Do(func() { close(oldStored) })
			}
		},
		Handler: func(_ context.Context, d task.Delivery) error {
			seen.add(d)
			switch string(d.Payload) {
			case "old":
				return d.NextWhen(task.At(at), []byte("old step"))
			case "new":
				close(newBegan)
				<-oldStored
				return d.NextWhen(task.At(at), []byte("new step"))
			}
			return nil
		},
	})
	w.schedule("a", "old")
	check.Closed(t, "the older version's step to be allowed", allowed)
	w.schedule("a", "new")
	check.Closed(t, "the newer version to be in its handler", newBegan)
	check.Until(t, "the scanner to settle it", func() bool { _, there := w.stored("a"); return !there })
	close(release)
	check.Until(t, "a step is done", func() bool { return counted(c, done) == 3 })
	var payloads []string
	for _, d := range seen.all() {
		payloads = append(payloads, string(d.Payload))
	}
	if len(payloads) != 3 || payloads[2] != "new step" {
		t.Errorf("handled %q, want the new step last, and no old step", payloads)
	}
}
