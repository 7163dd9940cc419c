package scanner

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// status returns what an operator sees of the topic.
func (l *lone) status() admin.TopicStatus {
	l.t.Helper()
	s, err := admin.ReadStatus(l.t.Context(), l.store, "orders")
	check.OK(l.t, err)
	return s.Topics[0]
}

// TestATopicWithoutAQueueDoesNotLookHealthy: the only task waits for its second attempt,
// a day away. Status and metrics count it from its due time, and say what the broker
// said. Once a queue is bound and the task has left, they report nothing.
func TestATopicWithoutAQueueDoesNotLookHealthy(t *testing.T) {
	t.Parallel()
	l := newLone(t, unroutable("max_attempts: 1000, backoff: {min: 24h, max: 24h}"), nil)
	ch, err := l.broker().Channel()
	check.OK(l.t, err)
	check.OK(l.t, ch.ExchangeDeclare("nowhere", "direct", true, false, false, false, nil))
	l.start()
	l.put(1)
	p, err := l.topic("orders").Placement(t.Context())
	check.OK(l.t, err)
	stored, err := l.topic("orders").Shard(0).Read(t.Context(), p, "o-0")
	check.OK(l.t, err)
	var s admin.TopicStatus
	check.Until(t, "the task to wait for another attempt", func() bool { s = l.status(); return s.Retrying > 0 })
	if s.Retrying != 1 || !s.Oldest.Equal(stored.Due) || !strings.Contains(s.RetryReason, "312 NO_ROUTE") {
		t.Errorf("status: %d tasks, oldest %s, %q; want 1, %s, and what the broker said", s.Retrying, s.Oldest, s.RetryReason,
			stored.Due)
	}
	if notes := fmt.Sprint(s.Notes); !strings.Contains(notes, "1 tasks wait for another attempt") ||
		!strings.Contains(notes, "312 NO_ROUTE") {
		t.Errorf("notes: %s", notes)
	}
	check.Until(t, "the metrics", func() bool {
		return l.value("duefleet_retrying_tasks") == 1 && l.value("duefleet_retry_reason") == 1 &&
			l.value("duefleet_oldest_due_seconds") > 0
	})

	_, err = ch.QueueDeclare("somewhere", true, false, false, false, nil)
	check.OK(l.t, err)
	check.OK(l.t, ch.QueueBind("somewhere", "orders", "nowhere", false, nil))
	l.write(unroutable("max_attempts: 1000, backoff: {min: 50ms, max: 50ms}"))
	l.put(1) // again, due now: it replaces the waiting one
	check.Until(t, "the task to leave", l.empty)
	if s = l.status(); s.Retrying != 0 || !s.Oldest.IsZero() || len(s.Notes) != 0 {
		t.Errorf("status of a topic without a task: %+v", s)
	}
}

// claimedBefore returns a claimed task with this due time and attempt.
func claimedBefore(id string, due time.Time, attempt int) shard.Claimed {
	return shard.Claimed{Task: task.Task{ID: id, Due: due, Attempt: attempt}, Token: "-1"}
}

// TestRetriesAreCountedUntilTheirTime: tasks count while they wait and while they are in
// flight. The earliest due time counts until its task is in flight somewhere.
func TestRetriesAreCountedUntilTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, now := newRetries(), time.Now()
		release := func(at int, due time.Time, delay time.Duration, reason string) {
			claimed := claimedBefore("a", due, 1)
			r.released(item{claim: &claim{shard: at}, claimed: &claimed}, shard.Release{Delay: delay, Reason: reason},
				forward.Refused)
		}
		check := func(when string, want balance.TopicNote) {
			t.Helper()
			var got balance.TopicNote
			r.addToNote(&got)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		at := now.UTC()
		release(2, now.Add(-time.Minute), 10*time.Second, "early")
		release(5, now.Add(-time.Hour), time.Minute, "late")
		release(5, now.Add(-time.Second), time.Minute, "late")
		check("after they were given back", balance.TopicNote{Retrying: 3, RetryingSince: at.Add(-time.Hour),
			RetryReason: "late", RetryReasonAt: at})
		if oldest := r.oldest(); !oldest[2].Equal(now.Add(-time.Minute)) || !oldest[5].Equal(now.Add(-time.Hour)) ||
			len(oldest) != 2 {
			t.Errorf("oldest by shard: %v", oldest)
		}
		time.Sleep(12 * time.Second)
		check("when the first one's time has come", balance.TopicNote{Retrying: 2, RetryingSince: at.Add(-time.Hour),
			RetryReason: "late", RetryReasonAt: at})
		time.Sleep(49 * time.Second)
		check("when all have had their time", balance.TopicNote{RetryingSince: at.Add(-time.Hour)})
		time.Sleep(retryLinger)
		check("a while later", balance.TopicNote{})

		again := []shard.Claimed{claimedBefore("a", now, 1), claimedBefore("b", now.Add(-time.Hour), 2)}
		r.claimed(7, again)
		check("in flight", balance.TopicNote{Retrying: 1, RetryingSince: at.Add(-time.Hour), RetryReason: "late",
			RetryReasonAt: at})
		for i := range again {
			r.resolved(item{claimed: &again[i]})
		}
		check("delivered", balance.TopicNote{})
	})
}

// TestRetriesTakeLittleMemory: a hundred thousand tasks that fail again and again, each
// with its own delay, form some hundred groups.
func TestRetriesTakeLittleMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, now := newRetries(), time.Now()
		for i := range 100_000 {
			claimed := claimedBefore("a", now, 1)
			delay := retryDelay(time.Second, 5*time.Minute, 1+i%12)
			r.released(item{claim: &claim{}, claimed: &claimed}, shard.Release{Delay: delay}, forward.Overdue)
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(r.waiting); n > 500 {
			t.Errorf("%d groups", n)
		}
	})
}
