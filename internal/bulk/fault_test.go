package bulk

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestAChangeGoesOnAfterRedisWasKilled: the command ends with an error that says so. The
// same command again changes the rest, and no task twice.
func TestAChangeGoesOnAfterRedisWasKilled(t *testing.T) {
	t.Parallel()
	for _, verb := range []Verb{RunNow, Move, Cancel} {
		t.Run(string(verb), func(t *testing.T) {
			t.Parallel()
			server := servertest.OwnRedis(t, "--appendfsync", "always") // everysec may delay a write while the disk is busy
			s := stockIn(t, fixture.At(t, server.Addr(), "p"), 2)
			const tasks = 450
			at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
			s.put(task.At(at), names("a", tasks)...)
			c := Change{Verb: verb, By: time.Hour, Op: shard.NewOp()}
			full := false
			var kill sync.Once
			faults.Before(s.Client, func(r faults.Request) { // as the third batch is sent
				if full && r.Pipelined && strings.HasPrefix(r.Commands[0].Name(), "evalsha") {
					kill.Do(func() { check.OK(t, server.Kill()) })
				}
			})
			first, err := s.change(c, Filter{}, func(n Counts) { full = n.Changed >= 200 })
			if !errors.Is(err, task.ErrUnavailable) && !errors.Is(err, task.ErrUncertain) {
				t.Fatalf("Redis was killed: %+v, %v", first, err)
			}
			check.Equal(t, "the first time", first, Counts{Matched: 200 + batchTasks, Changed: 200, Failed: batchTasks})
			check.OK(t, server.Restart(t.Context()))
			second, err := s.change(c, Filter{}, nil)
			check.OK(t, err)
			check.Equal(t, "changed by both", first.Changed+second.Changed, tasks)
			left := int64(tasks)
			if verb == Cancel {
				left = 0
			}
			check.Equal(t, "left", s.copies(), left)
			for _, id := range names("a", int(left)) {
				got := s.must(id)
				if verb == Move && !got.Due.Equal(at.Add(time.Hour)) || verb == RunNow && !got.Due.Before(at) {
					t.Errorf("%s is due at %s", id, got.Due)
				}
			}
		})
	}
}

// TestARedisThatIsAwayIsUnavailable, whichever request finds that out.
func TestARedisThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	for at := range 3 {
		s := newStock(t, 1)
		s.put(task.In(time.Hour), names("a", 200)...)
		faults.Die(s.Client, at, io.EOF)
		if n, err := s.change(Change{Verb: Move, By: time.Hour}, Filter{}, nil); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("request %d: %+v, %v", at, n, err)
		}
	}
}

// TestTheShardCountChangesDuringAChange: each task is changed once, and has one copy.
func TestTheShardCountChangesDuringAChange(t *testing.T) {
	t.Parallel()
	for _, verb := range []Verb{RunNow, Move, Cancel} {
		for _, change := range [][2]int{{1, 4}, {4, 2}} {
			t.Run(fmt.Sprintf("%s, %d to %d shards", verb, change[0], change[1]), func(t *testing.T) {
				t.Parallel()
				s := newStock(t, change[0])
				const tasks = 350
				at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
				s.put(task.At(at), names("a", tasks)...)
				begun := false
				n, err := s.change(Change{Verb: verb, By: time.Hour}, Filter{Prefix: "a"}, func(Counts) {
					if !begun {
						done, err := s.topic.Begin(t.Context(), fixture.Placement(t, s.topic), change[1])
						check.OK(t, err)
						begun = done
					}
				})
				check.OK(t, err)
				check.Equal(t, "begun", begun, true)
				check.Equal(t, "counts", n, Counts{Matched: tasks, Changed: tasks})
				if verb == Cancel {
					check.Equal(t, "left", s.copies(), int64(0))
					return
				}
				check.Equal(t, "copies", s.copies(), tasks)
				for _, id := range names("a", tasks) {
					got := s.must(id)
					if verb == Move && !got.Due.Equal(at.Add(time.Hour)) || verb == RunNow && !got.Due.Before(at) {
						t.Errorf("%s is due at %s", id, got.Due)
					}
				}
			})
		}
	}
}

// TestARetryIsRunNowWhileTheShardCountChanges: its first due time has passed, and only its
// old shard knows its next attempt.
func TestARetryIsRunNowWhileTheShardCountChanges(t *testing.T) {
	t.Parallel()
	s := newStock(t, 1)
	const tasks = 60
	s.release(false, names("r", tasks)...)
	_, err := s.topic.Begin(t.Context(), fixture.Placement(t, s.topic), 4)
	check.OK(t, err)
	s.run(Change{Verb: RunNow}, Filter{State: admin.Retrying}, Counts{Matched: tasks, Changed: tasks})
	claimed, _ := s.claim(shard.MaxBatch)
	check.Equal(t, "claimed", len(claimed), tasks)
	for _, c := range claimed {
		check.Equal(t, c.ID+": attempt", c.Attempt, 2)
	}
}

// TestATaskThatIsDeliveredInBetweenIsSkipped, and one that is leased, put again or cancelled
// after the filter saw it.
func TestATaskThatIsDeliveredInBetweenIsSkipped(t *testing.T) {
	t.Parallel()
	s := newStock(t, 1)
	s.put(task.Now(), "1", "2", "3", "4", "5")
	r := router.New(s.Store).Topic(fixture.Orders)
	first := true
	later := time.Now().Add(5 * time.Hour).Truncate(time.Millisecond)
	// batches of one task, in the order of the IDs
	n, err := s.change(Change{Verb: Move, When: task.In(time.Hour), Rate: 10}, Filter{}, func(Counts) {
		if !first {
			return
		}
		first = false
		claimed, at := s.claim(2)
		check.Equal(t, "claimed", len(claimed), 2)
		settled, err := at["2"].Settle(t.Context(), []shard.Lease{{ID: "2", Token: claimed[0].Token}})
		check.OK(t, err)
		check.Equal(t, "settled", settled, 1)
		s.put(task.At(later), "4")
		check.OK(t, r.Cancel(t.Context(), "5"))
	})
	check.OK(t, err)
	check.Equal(t, "counts", n, Counts{Matched: 5, Changed: 1, Skipped: 4})
	check.Equal(t, "3", s.must("3").State, task.Leased)
	check.Equal(t, "due of 4", s.must("4").Due.UnixMilli(), later.UnixMilli())
}

// TestATaskThatTheWalkMovedIsNotMetAgain: it lies in front of the walk then. With the same
// Op, a second walk doesn't move it either.
func TestATaskThatTheWalkMovedIsNotMetAgain(t *testing.T) {
	t.Parallel()
	s := newStock(t, 2)
	const tasks = 600
	begin := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	ids := names("a", tasks)
	for i, id := range ids {
		s.put(task.At(begin.Add(time.Duration(i)*time.Second)), id)
	}
	c := Change{Verb: Move, By: 5 * time.Minute, Op: shard.NewOp(), Limit: 250}
	n, err := s.change(c, Filter{}, nil)
	check.OK(t, err)
	check.Equal(t, "changed up to the limit", n.Changed, int64(250))
	c.Limit = 0
	n, err = s.change(c, Filter{}, nil)
	check.OK(t, err)
	check.Equal(t, "the second time", n, Counts{Matched: tasks, Changed: tasks - 250, Skipped: 250})
	for i, id := range ids {
		want := begin.Add(time.Duration(i)*time.Second + 5*time.Minute)
		check.Equal(t, id, s.must(id).Due.UnixMilli(), want.UnixMilli())
	}
}

// TestALostReplyCountsOnce: the call is repeated, and answers as the first one did.
func TestALostReplyCountsOnce(t *testing.T) {
	t.Parallel()
	s := newStock(t, 1)
	s.put(task.In(time.Hour), "a")
	text, err := shard.Script("retime")
	check.OK(t, err)
	s.run(Change{Verb: Move, By: time.Hour}, Filter{}, Counts{Matched: 1, Changed: 1}) // Redis knows the script
	due := s.must("a").Due
	faults.Lose(s.Client, 1, func(cmd redis.Cmder) bool { return faults.Runs(cmd, text) })
	s.run(Change{Verb: Move, By: time.Hour}, Filter{}, Counts{Matched: 1, Changed: 1})
	check.Equal(t, "due", s.must("a").Due.UnixMilli(), due.Add(time.Hour).UnixMilli())
}
