package bulk

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// TestARetryIsRunNow: one named, or many by their state. Each keeps its attempts, its reason
// and its due time, and the next run skips it.
func TestARetryIsRunNow(t *testing.T) {
	t.Parallel()
	s := newStock(t, 4)
	s.release(false, append(names("r", 250), "one")...)
	s.put(task.In(time.Hour), names("w", 10)...)
	due := s.must("one").Due
	s.run(Change{Verb: RunNow}, Filter{IDs: []string{"one"}}, Counts{Matched: 1, Changed: 1})
	one := s.must("one")
	if one.Attempt != 2 || one.Reason != "no queue" || !one.Due.Equal(due) || one.Next.After(due.Add(time.Minute)) {
		t.Errorf("one: %+v", one)
	}
	check.Until(t, "the estimate of Redis's clock to reach the new time", func() bool {
		now, err := s.topic.Now(t.Context())
		return err == nil && now >= one.Next.UnixMilli()
	})
	retrying := Filter{State: admin.Retrying}
	n, err := Count(t.Context(), Change{Topic: s.topic, Verb: RunNow}, retrying)
	check.OK(t, err)
	check.Equal(t, "a dry run", n, Counts{Matched: 251, Changed: 250, Skipped: 1})
	s.run(Change{Verb: RunNow}, retrying, Counts{Matched: 251, Changed: 250, Skipped: 1})
	s.run(Change{Verb: RunNow}, retrying, Counts{Matched: 251, Skipped: 251})
	claimed, _ := s.claim(shard.MaxBatch)
	check.Equal(t, "claimed", len(claimed), 251)
	for _, c := range claimed {
		check.Equal(t, c.ID+": attempt", c.Attempt, 2)
	}
}

// TestAWaitingTaskIsRunNow: its due time is now. Parked and leased tasks are skipped.
func TestAWaitingTaskIsRunNow(t *testing.T) {
	t.Parallel()
	s := newStock(t, 2)
	s.release(true, "parked")
	s.put(task.Now(), "leased")
	s.claim(1)
	s.put(task.In(time.Hour), "waiting")
	s.run(Change{Verb: RunNow}, Filter{}, Counts{Matched: 3, Changed: 1, Skipped: 2})
	claimed, _ := s.claim(10)
	if len(claimed) != 1 || claimed[0].ID != "waiting" || claimed[0].Attempt != 1 {
		t.Errorf("claimed %+v", claimed)
	}
}

// TestTasksAreMovedByTheFiltersOfTheList: to a time, or by a duration.
func TestTasksAreMovedByTheFiltersOfTheList(t *testing.T) {
	t.Parallel()
	s := newStock(t, 3)
	begin := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	s.put(task.At(begin), names("a", 5)...)
	s.put(task.At(begin.Add(time.Minute)), names("b", 5)...)
	s.release(false, "r")
	next := s.must("r").Next
	s.run(Change{Verb: Move, By: 24 * time.Hour}, Filter{Prefix: "a-"}, Counts{Matched: 5, Changed: 5})
	check.Equal(t, "due of a", s.must("a-0003").Due.UnixMilli(), begin.Add(24*time.Hour).UnixMilli())
	to := begin.Add(48 * time.Hour)
	s.run(Change{Verb: Move, When: task.At(to)},
		Filter{State: task.Waiting, DueAfter: begin, DueBefore: begin.Add(time.Hour)}, Counts{Matched: 5, Changed: 5})
	check.Equal(t, "due of b", s.must("b-0004").Due.UnixMilli(), to.UnixMilli())
	s.run(Change{Verb: Move, By: time.Minute}, Filter{IDs: []string{"r", "r"}}, Counts{Matched: 1, Changed: 1})
	r := s.must("r")
	if !r.Next.Equal(next.Add(time.Minute)) || r.Attempt != 2 || r.Reason != "no queue" {
		t.Errorf("r: %+v, before next %s", r, next)
	}
	s.run(Change{Verb: Move, By: -1000 * time.Hour}, Filter{Prefix: "a-"}, Counts{Matched: 5, Changed: 5})
	claimed, _ := s.claim(10)
	check.Equal(t, "due at once", len(claimed), 5)
}

// TestTasksAreCancelled in every state. A named task that isn't there is an error.
func TestTasksAreCancelled(t *testing.T) {
	t.Parallel()
	s := newStock(t, 3)
	s.release(true, "x-parked")
	s.release(false, "x-retrying")
	s.put(task.In(time.Hour), append(names("x", 300), "other", "more")...)
	n, err := s.change(Change{Verb: Cancel}, Filter{IDs: []string{"other", "none", "nothing"}}, nil)
	var missing *MissingError
	if !errors.As(err, &missing) || !errors.Is(err, task.ErrNotFound) || len(missing.IDs) != 2 ||
		n != (Counts{Matched: 1, Changed: 1}) {
		t.Errorf("got %+v, %v", n, err)
	}
	s.run(Change{Verb: Cancel}, Filter{Prefix: "x"}, Counts{Matched: 302, Changed: 302})
	check.Equal(t, "left", s.copies(), int64(1))
	s.run(Change{Verb: Cancel}, Filter{Prefix: "x"}, Counts{})
	if _, err := Run(t.Context(), Change{Topic: s.Store.Topic("none"), Verb: Cancel}, Filter{}, nil); !errors.Is(err,
		task.ErrUnknownTopic) {
		t.Errorf("unknown topic: %v", err)
	}
}

// TestAChangeKeepsToItsLimitAndItsRate, and can be cancelled.
func TestAChangeKeepsToItsLimitAndItsRate(t *testing.T) {
	t.Parallel()
	s := newStock(t, 2)
	s.put(task.In(time.Hour), names("a", 250)...)
	n, err := s.change(Change{Verb: RunNow, Limit: 120}, Filter{}, nil)
	check.OK(t, err)
	check.Equal(t, "changed with a limit", n.Changed, int64(120))
	began := time.Now()
	n, err = s.change(Change{Verb: RunNow, Limit: 30, Rate: 20}, Filter{}, nil)
	check.OK(t, err)
	check.Equal(t, "changed with a rate", n.Changed, int64(30))
	if took := time.Since(began); took < 1300*time.Millisecond { // the first two at once, then 20 a second
		t.Errorf("30 tasks at 20 a second took %s", took)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	n, err = Run(ctx, Change{Topic: s.topic, Verb: RunNow, Op: shard.NewOp(), Rate: 1}, Filter{}, func(n Counts) {
		if n.Changed > 0 { // an earlier batch may be due already: the walk knows Redis's clock to some ms
			stop()
		}
	})
	if n.Changed != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("ended after the first: %+v, %v", n, err)
	}
}

// TestARecordThatCannotBeReadFailsAlone: it can only be cancelled.
func TestARecordThatCannotBeReadFailsAlone(t *testing.T) {
	t.Parallel()
	s := newStock(t, 1)
	s.put(task.In(time.Hour), "bad", "good")
	check.OK(t, s.Client.HSet(t.Context(), s.Prefix+":task:{orders:0}", "bad", "\x10cut").Err())
	n, err := s.change(Change{Verb: RunNow}, Filter{}, nil)
	if err == nil || n != (Counts{Matched: 2, Changed: 1, Failed: 1}) {
		t.Errorf("run now: %+v, %v", n, err)
	}
	n, err = s.change(Change{Verb: RunNow}, Filter{IDs: []string{"bad"}}, nil)
	if err == nil || n != (Counts{Matched: 1, Failed: 1}) {
		t.Errorf("run one now: %+v, %v", n, err)
	}
	s.run(Change{Verb: Cancel}, Filter{}, Counts{Matched: 2, Changed: 2})
}
