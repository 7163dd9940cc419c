package poll

import (
	"testing"
	"time"
)

// TestTheShardWhoseTimeComesFirstIsServedFirst: due times, wake-ups, and rests after
// errors decide.
func TestTheShardWhoseTimeComesFirstIsServedFirst(t *testing.T) {
	t.Parallel()
	heard := time.Now().Add(-time.Millisecond)
	redis := time.UnixMilli(1_000_000) // its clock differs from ours
	var q queue
	a, b, c := &polled{shard: 7}, &polled{shard: 8}, &polled{shard: 9}
	first := func(what string, shard int, in time.Duration) {
		t.Helper()
		for _, one := range []*polled{a, b, c} {
			q.put(one)
		}
		if got, ok := q.later.First(); !ok || got.shard != shard || !got.next.Equal(heard.Add(in)) {
			t.Fatalf("%s: first is %+v, want shard %d at %s", what, got, shard, heard.Add(in))
		}
	}
	if got, ok := q.later.First(); ok {
		t.Fatalf("nothing is due in any, and the first is %+v", got)
	}
	a.learn(heard, redis, redis.Add(5*time.Second))
	b.learn(heard, redis, redis.Add(3*time.Second))
	c.learn(heard, redis, time.Time{})
	first("due times", 8, 3*time.Second)
	c.wake(redis.Add(time.Second).UnixMilli())
	first("a task in an empty shard", 9, time.Second)
	c.wake(redis.Add(4 * time.Second).UnixMilli())
	first("a wake-up for what is known to be due sooner", 9, time.Second)
	a.wake(redis.Add(-time.Second).UnixMilli())
	first("a task that is overdue", 7, -time.Second)
	a.fail(time.Hour)
	first("a shard that failed comes later", 9, time.Second)
	failed := a.next
	a.wake(1)
	if a.next != failed {
		t.Error("a wake-up cut short the rest after an error")
	}
	c.busy = true
	first("a shard with a call under way has no time", 8, 3*time.Second)
	c.wake(redis.Add(2 * time.Second).UnixMilli())
	c.ended()
	first("a call that is over", 9, time.Second)
}

// TestWhenAShardIsClaimedFrom: at the due time, unless another scanner is the primary of the
// shard, or this one has just claimed from it.
func TestWhenAShardIsClaimedFrom(t *testing.T) {
	t.Parallel()
	now := time.Now()
	redis := time.UnixMilli(1_000_000)
	for name, c := range map[string]struct {
		took  time.Duration // of the claim before
		other time.Duration // for how long another scanner is the primary; 0: none is
		two   time.Duration // for how long two others come first; 0: they don't.
		next  time.Duration // the next due time, from now on
		want  time.Duration // from now on.
		look  bool          // before the claim.
		empty bool          // the claim before found nothing
	}{
		"due soon after a claim":      {time.Millisecond, 0, 0, time.Millisecond, 3 * time.Millisecond, false, false},
		"due soon after a slow claim": {4 * time.Millisecond, 0, 0, 500 * time.Microsecond, time.Millisecond, false, false},
		"due long after a claim":      {time.Millisecond, 0, 0, time.Second, time.Second, false, false},
		"overdue":                     {time.Millisecond, 0, 0, -time.Second, -time.Second, false, false},
		"due after an empty claim":    {time.Millisecond, 0, 0, time.Second, time.Second + lookSlot, true, true},
		"due while another claims":    {time.Millisecond, time.Hour, 0, time.Second, time.Second + lookSlot, true, true},
		"due just before another leaves": {time.Millisecond, time.Second + Grace/2, 0, time.Second,
			time.Second + Grace/2, false, true},
		"due when another has left": {time.Millisecond, time.Second, 0, 2 * time.Second, 2 * time.Second, false, true},
		"just overdue and left to another for it": {time.Millisecond, time.Hour, 0, -time.Millisecond,
			lookSlot, true, true},
		"left by another longer than grace": {time.Millisecond, time.Hour, 0, -time.Second, Grace - time.Second, false, true},
		"due while two others come first": {time.Millisecond, time.Hour, 1500 * time.Millisecond, time.Second,
			1500 * time.Millisecond, true, true},
		"due long before one of two leaves": {time.Millisecond, time.Hour, time.Hour, time.Second,
			3*time.Second + lookSlot, true, true},
		"due soon after one of two has left": {time.Millisecond, time.Hour, time.Second, time.Second,
			time.Second + lookSlot, true, true},
		"left by two others longer than grace": {time.Millisecond, time.Hour, time.Hour, -time.Second, Grace - time.Second,
			false, true},
	} {
		// from the claim before
		a := &polled{node: &node{began: now}, rest: now.Add(time.Hour), other: now.Add(time.Hour), two: now.Add(c.two),
			tick: 2 * time.Second}
		b := Answer{Asked: now.Add(-c.took), Heard: now, Now: redis, Next: redis.Add(c.next)}
		if !c.empty {
			b.Found = 1
		}
		if c.other > 0 {
			b.Polled = redis.Add(c.other)
		}
		a.claimed(b)
		if got := a.next.Sub(now); got != c.want || a.unseen != c.look {
			t.Errorf("%s: claims in %s after a look %t, want %s, %t", name, got, a.unseen, c.want, c.look)
		}
		a.next = time.Time{}
		a.wake(b.Next.UnixMilli())
		if got, whole := a.next.Sub(now), c.next%time.Millisecond == 0; whole && (got != c.want || a.unseen != c.look) {
			t.Errorf("%s, told by a wake-up: claims in %s after a look %t, want %s, %t", name, got, a.unseen, c.want, c.look)
		}
	}
}

// TestGrace is longer while Redis takes long to answer.
func TestGrace(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: Grace, time.Millisecond: Grace, 20 * time.Millisecond: 80 * time.Millisecond, time.Second: mostGrace,
	} {
		if got := (&node{took: took}).grace(); got != want {
			t.Errorf("after an answer that took %s, the grace is %s, want %s", took, got, want)
		}
	}
}

// TestAnOldBacklogHoldsUpNoOtherShard: shards with due tasks are served in turn.
func TestAnOldBacklogHoldsUpNoOtherShard(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var q queue
	for _, a := range []*polled{{shard: 1, next: now.Add(-time.Hour)}, {shard: 2, next: now.Add(-time.Second)}, {shard: 3},
		{shard: 4, next: now.Add(time.Second)}} {
		q.put(a)
	}
	q.ripen(now.Add(-2 * time.Hour))
	each := func(*polled) bool { return true }
	if a := q.take(each); a != nil {
		t.Errorf("shard %d is served before its time", a.shard)
	}
	for turn, want := range []int{1, 2, 1, 2} {
		q.ripen(now)
		a := q.take(each)
		if a == nil || a.shard != want {
			t.Fatalf("turn %d: %+v, want shard %d", turn, a, want)
		}
		q.put(a) // its claim left more
	}
	if q.ripen(now); q.take(func(a *polled) bool { return a.shard == 2 }).shard != 2 {
		t.Error("a shard that may not be served holds up another one")
	}
}

// A tick that was cut short is followed by its rest, so that ticks keep their rhythm. A tick
// that is late, or whose length has changed, begins a new rhythm.
func TestRestOf(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct{ end, tick, want time.Duration }{
		"in time":                 {0, time.Second, time.Second},
		"a little late":           {-10 * time.Millisecond, time.Second, 990 * time.Millisecond},
		"later than a tick":       {-1500 * time.Millisecond, time.Second, time.Second},
		"cut short":               {300 * time.Millisecond, time.Second, 300 * time.Millisecond},
		"cut short, shorter now":  {30 * time.Second, time.Second, time.Second},
		"cut short, longer now":   {300 * time.Millisecond, time.Minute, 300 * time.Millisecond},
		"exactly a tick too late": {-time.Second, time.Second, time.Second},
	} {
		if got := restOf(now.Add(c.end), now, c.tick).Sub(now); got != c.want {
			t.Errorf("%s: the tick ends in %s, want %s", name, got, c.want)
		}
	}
}
