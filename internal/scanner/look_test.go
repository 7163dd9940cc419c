package scanner

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
)

// TestTheShardWhoseTimeComesFirstIsServedFirst: due times, wake-ups, and rests after
// errors decide.
func TestTheShardWhoseTimeComesFirstIsServedFirst(t *testing.T) {
	t.Parallel()
	heard := time.Now().Add(-time.Millisecond)
	redis := time.UnixMilli(1_000_000) // its clock differs from ours
	all := polledShards{{shard: 7}, {shard: 8}, {shard: 9}}
	check := func(what string, shard int, in time.Duration) {
		t.Helper()
		first := all.first()
		if first == nil || first.shard != shard || !first.next.Equal(heard.Add(in)) {
			t.Fatalf("%s: first is %+v, want shard %d in %s", what, first, shard, in)
		}
	}
	if first := all.first(); first != nil {
		t.Fatalf("nothing is due in any, and first is %+v", first)
	}
	all[0].setAttention(heard, redis, redis.Add(5*time.Second))
	all[1].setAttention(heard, redis, redis.Add(3*time.Second))
	all[2].setAttention(heard, redis, time.Time{})
	check("due times", 8, 3*time.Second)
	all.wake(9, redis.Add(time.Second).UnixMilli())
	check("a task in an empty shard", 9, time.Second)
	all.wake(9, redis.Add(4*time.Second).UnixMilli())
	check("a wake-up for what is known to be due sooner", 9, time.Second)
	all.wake(7, redis.Add(-time.Second).UnixMilli())
	check("a task that is overdue", 7, -time.Second)
	all[0].fail(time.Hour)
	check("a shard that failed comes later", 9, time.Second)
	failed := all[0].next
	all.wake(7, 1)
	if all[0].next != failed {
		t.Error("a wake-up cut short the rest after an error")
	}
	all.wake(1, 1) // a shard that isn't polled
	check("a wake-up for another shard", 9, time.Second)
}

// TestWhenAWorkerClaims: at the due time, unless another worker is the primary of the
// shard, or this one has just claimed from it.
func TestWhenAWorkerClaims(t *testing.T) {
	t.Parallel()
	now := time.Now()
	redis := time.UnixMilli(1_000_000)
	for name, c := range map[string]struct {
		took        time.Duration // of the claim before
		polledShard time.Duration // for how long another worker is the primary; 0: none is
		next        time.Duration // the next due time, from now on
		want        time.Duration // from now on
	}{
		"due soon after a claim":      {time.Millisecond, 0, time.Millisecond, 3 * time.Millisecond},
		"due soon after a slow claim": {4 * time.Millisecond, 0, 500 * time.Microsecond, time.Millisecond},
		"due long after a claim":      {time.Millisecond, 0, time.Second, time.Second},
		"overdue":                     {time.Millisecond, 0, -time.Second, -time.Second},
		"due while another claims":    {time.Millisecond, time.Hour, time.Second, time.Second + grace},
		"due just before another leaves": {time.Millisecond, time.Second + grace/2, time.Second,
			time.Second + grace/2},
		"due when another has left":               {time.Millisecond, time.Second, 2 * time.Second, 2 * time.Second},
		"just overdue and left to another for it": {time.Millisecond, time.Hour, -time.Millisecond, grace - time.Millisecond},
	} {
		a := &polledShard{rest: now.Add(time.Hour), other: now.Add(time.Hour)} // from the claim before
		b := shard.Batch{Now: redis, Next: redis.Add(c.next)}
		if c.polledShard > 0 {
			b.Polled = redis.Add(c.polledShard)
		}
		a.learnClaimed(now.Add(-c.took), now, b)
		if got := a.next.Sub(now); got != c.want {
			t.Errorf("%s: claims in %s, want %s", name, got, c.want)
		}
		a.next = time.Time{}
		polledShards{a}.wake(0, b.Next.UnixMilli())
		if got, whole := a.next.Sub(now), c.next%time.Millisecond == 0; whole && got != c.want {
			t.Errorf("%s, told by a wake-up: claims in %s, want %s", name, got, c.want)
		}
	}
}

// TestAnOldBacklogHoldsUpNoOtherShard: shards with due tasks are served in turn.
func TestAnOldBacklogHoldsUpNoOtherShard(t *testing.T) {
	t.Parallel()
	now := time.Now()
	all := polledShards{{shard: 1, next: now.Add(-time.Hour)}, {shard: 2, next: now.Add(-time.Second)}, {shard: 3},
		{shard: 4, next: now.Add(time.Second)}}
	for turn, want := range []int{1, 2, 1, 2} {
		p := all.due(now)
		if p == nil || p.shard != want {
			t.Fatalf("turn %d: %+v, want shard %d", turn, p, want)
		}
		p.claimed = now.Add(time.Duration(turn) * time.Millisecond)
	}
	if p := all.due(now.Add(-2 * time.Hour)); p != nil {
		t.Errorf("shard %d is served before its time", p.shard)
	}
}

func TestAWaiterIsToldOfTheEarliestSince(t *testing.T) {
	t.Parallel()
	w := newWaiters()
	own := w.add(3)
	other := w.add(4)
	w.notify(3, 500)
	w.notify(3, 200)
	w.notify(3, 900)
	<-own.notified
	if scores := own.takeScores(); len(scores) != 1 || scores[3] != 200 {
		t.Fatalf("heard of %v, the earliest of shard 3 was 200", scores)
	}
	if scores := own.takeScores(); len(scores) != 0 {
		t.Fatalf("heard of %v twice", scores)
	}
	select {
	case <-other.notified:
		t.Fatal("another shard's waiter was notified")
	default:
	}
	own.remove()
	w.notify(3, 100)
	select {
	case <-own.notified:
		t.Fatal("a waiter was notified that had been removed")
	default:
	}
}

func TestTwoWorkersWithOneShardAreBothNotified(t *testing.T) {
	t.Parallel()
	w := newWaiters()
	first := w.add(0)
	second := w.add(0)
	w.notify(0, 7)
	<-first.notified
	<-second.notified
	if first.takeScores()[0] != 7 || second.takeScores()[0] != 7 {
		t.Fatal("they heard of different scores")
	}
}

func TestAWaiterIsToldOfEachOfItsShards(t *testing.T) {
	t.Parallel()
	w := newWaiters()
	own := w.add(3, 4)
	for shard, score := range map[int]int64{3: 500, 4: 200, 5: 100} {
		w.notify(shard, score)
	}
	<-own.notified
	if scores := own.takeScores(); len(scores) != 2 || scores[3] != 500 || scores[4] != 200 {
		t.Fatalf("heard of %v, want 500 in shard 3 and 200 in shard 4", scores)
	}
	own.remove()
	w.notify(4, 50)
	if scores := own.takeScores(); len(scores) != 0 {
		t.Fatalf("heard of %v after it was removed", scores)
	}
}
