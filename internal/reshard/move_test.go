package reshard

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// TestMovingTakesItsShare: after every step, moving has taken no less than its
// share of the time so far, and at most one step more.
func TestMovingTakesItsShare(t *testing.T) {
	for _, movers := range []int{1, 2, 3, 16} {
		for _, step := range []time.Duration{time.Millisecond, 7 * time.Millisecond, 60 * time.Millisecond} {
			const whole = 10 * time.Second
			began := time.Now()
			now, spent := began, time.Duration(0)
			for now.Sub(began) < whole {
				ended := now.Add(step)
				spent += step
				share := time.Duration(shareOf(movers) * float64(ended.Sub(began)))
				if spent < share || spent > share+step {
					t.Fatalf("%d movers, steps of %s: moving took %s of the first %s, want from %s up to one step more",
						movers, step, spent, ended.Sub(began), share)
				}
				now = turnAfter(now, ended, shareOf(movers))
			}
		}
	}
}

// TestMoversShareRedis: one worker moves for a quarter of its time. Several workers
// together move for a quarter of one worker's time, however many they are.
func TestMoversShareRedis(t *testing.T) {
	for movers, want := range map[int]float64{0: 0.25, 1: 0.25, 2: 0.125, 4: 0.0625, 50: 0.005} {
		if got := shareOf(movers); got != want {
			t.Errorf("each of %d movers moves for %v of its time, want %v", movers, got, want)
		}
	}
}

// TestAStallOfMovingIsNotPaidFor: after a step that hung with Redis, a worker doesn't
// rest for hours.
func TestAStallOfMovingIsNotPaidFor(t *testing.T) {
	began := time.Now()
	ended := began.Add(time.Minute)
	if got := turnAfter(began, ended, shareOf(100)).Sub(ended); got != moveLongest {
		t.Errorf("rests for %s, want %s", got, moveLongest)
	}
}

// TestAMoverThatFailsFreesItsShard: even if it doesn't know whether it is the shard's
// mover.
func TestAMoverThatFailsFreesItsShard(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.migrate()
	faults.Lose(b.rdb, 1, func(cmd redis.Cmder) bool { return cmd.Name() == "set" })
	m := b.resharder.newMover("me/0", 0, b.p)
	b.resharder.showAll(t.Context(), []*mover{m}, b.p)
	if m.state != moverIdle || m.try(t.Context(), t.Context()) {
		t.Fatal("the first step did not fail")
	}
	free, err := b.topic.Shard(0).TryMove(t.Context(), "another", time.Hour)
	if err != nil || !free {
		t.Errorf("another worker can't be the shard's mover: %v", err)
	}
}

// TestAWorkerMovesWhatIsMisplacedInAllItsShards: in one tick, if that is long enough.
func TestAWorkerMovesWhatIsMisplacedInAllItsShards(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ids := make([]string, 50)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	b.put(task.In(time.Hour), ids...)
	_, err := b.topic.Begin(t.Context(), b.p, 5)
	check.OK(t, err)
	b.p, err = b.topic.Placement(t.Context())
	check.OK(t, err)
	b.resharder.view.learnPlacement(b.p)
	b.resharder.Move(t.Context(), t.Context(), NewWorker("me/0"), []int{0, 1, 2, 3, 4}, b.p)
	b.reconcile()
	if b.p, err = b.topic.Placement(t.Context()); err != nil || b.p.Phase != shard.Stable {
		t.Fatalf("nothing is left to do, and the placement is %s (%v)", b.p, err)
	}
	for _, id := range ids {
		if !b.in(b.p.New(id), id) {
			t.Errorf("task %s is not in its place", id)
		}
	}
}

// An export's answer has what the mover asked for, even if a mover with the same name has
// exports in flight.
func TestAMoverStartedAgainIsExportedWhatItAskedFor(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.migrate()
	ids := b.misplaced(2)
	b.put(task.In(time.Hour), ids...)
	for _, id := range ids {
		m := b.resharder.newMover("me/0", 0, b.p)
		export, err := b.topic.Shard(0).Export(t.Context(), b.p, m.newExport([]string{id}))
		check.OK(t, err)
		if len(export.Tasks) != 1 || export.Tasks[0].ID != id {
			t.Errorf("asked for %s, and exported %v", id, export.Tasks)
		}
	}
}

// An export may bring other tasks than the mover asked for. The shard is clean of those
// it asked for only if they are gone.
func TestAnExportOfOthersDoesNotMakeAShardClean(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.migrate()
	ids := b.misplaced(2)
	b.put(task.In(time.Hour), ids...)
	m := b.resharder.newMover("me/0", 0, b.p)
	exported, asked := m.newExport(ids[:1]), ids[1]
	_, err := b.topic.Shard(0).Export(t.Context(), b.p, exported)
	check.OK(t, err)
	b.requests.Add(-1) // the next export has the same request number
	dirty, _, err := m.carry(t.Context(), []string{asked})
	if !dirty && b.in(0, asked) {
		t.Errorf("clean of %s, which is there still (%v)", asked, err)
	}
}

// A scan may meet a task twice.
func TestATaskThatIsMetTwiceIsMovedOnce(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.migrate()
	id := b.misplaced(1)[0]
	m := b.resharder.newMover("me/0", 0, b.p)
	check.Until(t, "an export that is not late", func() bool {
		b.put(task.In(time.Hour), id)
		dirty, _, err := m.carry(t.Context(), []string{id, id})
		return err == nil && !dirty
	})
	if b.in(0, id) || !b.in(1, id) {
		t.Error("the task is not where it belongs, and there alone")
	}
}
