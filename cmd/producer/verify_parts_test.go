package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestLatenesses: percentiles are at most 9 % too large and never too small, and the
// histogram counts each task in the first bucket that holds it.
func TestLatenesses(t *testing.T) {
	t.Parallel()
	var l latenesses
	check.Equal(t, "p50 of nothing", l.quantile(0.5), 0)
	check.Equal(t, "buckets of nothing", len(l.buckets()), 0)
	for ms := 1; ms <= 1000; ms++ {
		l.add(time.Duration(ms) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond,
		1: time.Second} {
		if got := l.quantile(q); got < want || got > want*109/100 || got > l.max {
			t.Errorf("quantile %v is %v, want %v and at most 9%% more", q, got, want)
		}
	}
	l.add(time.Hour)
	check.Equal(t, "the largest", l.quantile(1), time.Hour)
	chart := latenessChart(l.buckets())
	check.Equal(t, "the histogram", chart, `
      1ms         1 #
      2ms         1 #
      5ms         3 #
     10ms         5 #
     20ms        10 #
     50ms        30 ###
    100ms        50 ####
    200ms       100 ########
    500ms       300 ########################
       1s       500 ########################################
       2s         0
       5s         0
      10s         0
      20s         0
      50s         0
    1m40s         0
    3m20s         0
    8m20s         0
    later         1 #`)
	for line := range strings.Lines(chart) {
		if len(line) > 61 {
			t.Errorf("%q is wider than 60 columns", line)
		}
	}
}

// TestRedisClock: samples bound each other, age widens them, and a set clock replaces them.
func TestRedisClock(t *testing.T) {
	t.Parallel()
	c := newRedisClock(nil)
	at := func(d time.Duration) time.Time { return c.begin.Add(d) }
	want := func(when, ahead, uncertain time.Duration) {
		t.Helper()
		now, within := c.now(at(when))
		check.Equal(t, "ahead", now.Sub(at(when)), ahead)
		check.Equal(t, "error", within, uncertain)
	}
	c.add(clockSample{at(0), 10 * time.Millisecond, 20 * time.Millisecond})
	want(0, 15*time.Millisecond, 5*time.Millisecond)
	want(time.Second, 15*time.Millisecond, 6*time.Millisecond)
	c.add(clockSample{at(time.Second), 18 * time.Millisecond, 40 * time.Millisecond})
	want(time.Second, 19500*time.Microsecond, 1500*time.Microsecond)
	c.add(clockSample{at(2 * time.Second), -time.Second, -time.Second})
	want(2*time.Second, -time.Second, 0)
	check.Equal(t, "largest", c.largest(), 6*time.Millisecond)
	// The third sample contradicts the second one only, but the first is older.
	c = newRedisClock(nil)
	c.add(clockSample{at(0), 0, 55 * time.Millisecond})
	c.add(clockSample{at(0), 10 * time.Millisecond, 20 * time.Millisecond})
	c.add(clockSample{at(0), 50 * time.Millisecond, 60 * time.Millisecond})
	want(0, 55*time.Millisecond, 5*time.Millisecond)
}

// TestVerifyLedger: each kind of delivery is counted as what it is.
func TestVerifyLedger(t *testing.T) {
	t.Parallel()
	due := time.UnixMilli(1_800_000_000_000)
	const within = 2 * time.Millisecond
	type ledger = verifyLedger
	arrive := func(l *ledger, n int, after time.Duration, marked bool) {
		l.arrive(amqp.Delivery{
			MessageId: fmt.Sprintf("verify-x-%d", n), Type: "orders",
			Headers: amqp.Table{task.HeaderDue: due.UnixMilli(), task.HeaderScheduled: due.UnixMilli(),
				task.HeaderRedelivered: marked},
		}, due.Add(after), within)
	}
	for name, c := range map[string]struct {
		do   func(l *ledger)
		want func(l *ledger) bool
	}{
		"delivered": {func(l *ledger) { arrive(l, 0, 0, false) },
			func(l *ledger) bool { return l.delivered == 1 && l.late.count == 1 && l.earlyCount == 0 }},
		"early by the error": {func(l *ledger) { arrive(l, 0, -within, false) },
			func(l *ledger) bool { return l.earlyCount == 0 && l.late.max == 0 }},
		"early by more": {func(l *ledger) { arrive(l, 0, -within-time.Microsecond, false) },
			func(l *ledger) bool {
				return l.earlyCount == 1 && l.early[0] == "verify-x-0 by 2.001ms" && l.late.count == 0
			}},
		"repeated": {func(l *ledger) { arrive(l, 0, 0, false); arrive(l, 0, 0, false) },
			func(l *ledger) bool { return l.unmarkedCount == 1 && l.unmarked[0] == "verify-x-0" && l.delivered == 1 }},
		"repeated and marked": {func(l *ledger) { arrive(l, 0, 0, false); arrive(l, 0, 0, true) },
			func(l *ledger) bool { return l.unmarkedCount == 0 && l.markedCount == 1 }},
		"the marked one first": {func(l *ledger) { arrive(l, 0, 0, true); arrive(l, 0, 0, false) },
			func(l *ledger) bool { return l.unmarkedCount == 0 && l.markedCount == 1 }},
		"stored twice": {func(l *ledger) { l.storeAgain(0, true); arrive(l, 0, 0, false); arrive(l, 0, 0, false) },
			func(l *ledger) bool { return l.unmarkedCount == 0 && l.storedCount == 1 }},
		"a wrong due time in the message": {func(l *ledger) {
			l.arrive(amqp.Delivery{MessageId: "verify-x-0", Type: "orders", Headers: amqp.Table{
				task.HeaderDue: due.UnixMilli() + 1000, task.HeaderScheduled: due.UnixMilli(),
			}}, due.Add(time.Second), within)
		}, func(l *ledger) bool { return l.late.max == time.Second }},
		"never scheduled": {func(l *ledger) { arrive(l, 2, 0, false) },
			func(l *ledger) bool { return l.foreign == 1 && l.delivered == 0 }},
		"no task": {func(l *ledger) { l.arrive(amqp.Delivery{}, due, 0) },
			func(l *ledger) bool { return l.foreign == 1 }},
		"withdrawn": {func(l *ledger) { l.withdraw(0); l.withdraw(1) },
			func(l *ledger) bool { return l.left() == 0 && l.scheduled == 2 }},
		"stored later": {func(l *ledger) { l.know(0, due.Add(time.Second)); arrive(l, 0, time.Second, false) },
			func(l *ledger) bool { return l.late.max == 0 && l.earlyCount == 0 }},
	} {
		l := newVerifyLedger("verify-x-")
		l.reserve([]time.Time{due, due})
		l.know(0, due)
		l.know(1, due)
		if c.do(l); !c.want(l) {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// TestRecentNumbers: the newest members stay, and the oldest don't need memory for ever.
func TestRecentNumbers(t *testing.T) {
	t.Parallel()
	var r recentNumbers
	for n := range uint64(3 * recentMost) {
		r.add(n)
	}
	if !r.has(3*recentMost-1) || !r.has(2*recentMost) || r.has(0) || len(r.now)+len(r.before) > 2*recentMost {
		t.Errorf("%d and %d members", len(r.now), len(r.before))
	}
}
