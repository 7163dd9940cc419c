package scanner

import (
	"cmp"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

// attended is one shard that a worker attends for a tick.
type attended struct {
	shard int
	node  *node // that holds it, as far as is known
	// next is when to do something there, by this process's clock: to look, or else
	// to claim; zero: not before a wake-up.
	next time.Time
	// unseen shards are looked at, which reserves and leases nothing.
	unseen bool
	// heard is when Redis's clock showed now; zero: it isn't known.
	heard, now time.Time
	claimed    time.Time // when it was last claimed from in this tick
	rest       time.Time // no claim before it: more comes due meanwhile
	other      time.Time // until when another worker claims here, by this process's clock; zero: none does
	retry      retry.Backoff
	// busy: a look or a claim is under way. woken: the worker was told meanwhile that a
	// task with a score became the earliest. missed: for a tick it was not told.
	busy, woken, missed bool
	score               int64
}

// ready reports whether to look at the shard or to claim from it when its time comes.
func (a *attended) ready() bool {
	return !a.busy && (a.unseen || a.node == nil || a.node.left < mostLeft)
}

// grace is for how long a worker leaves what is due to the one that claims from the shard.
// It is longer than that one rests between two claims.
const grace = 15 * time.Millisecond

// A worker spends a share of its time on claims of a shard: after one that took d the next
// begins no sooner than restFactor x d after its beginning, or mostRest. So the busier
// the machine and Redis, the more tasks share a claim, and while they are not, tasks
// don't wait. It is how a network card moderates its interrupts.
const (
	restFactor = 4
	mostRest   = 5 * time.Millisecond
)

// attendance is the shards of a tick.
type attendance []*attended

// first returns the shard whose time comes first; nil if none has one.
func (all attendance) first() (first *attended) {
	for _, a := range all {
		if a.ready() && !a.next.IsZero() && (first == nil || a.next.Before(first.next)) {
			first = a
		}
	}
	return first
}

// due returns the shard to claim from now: of those whose time has come, the one that
// was claimed from longest ago, so that a shard with an old backlog doesn't hold up the
// others. It is nil if no time has come.
func (all attendance) due(now time.Time) (first *attended) {
	for _, a := range all {
		if a.unseen || !a.ready() || a.next.IsZero() || a.next.After(now) {
			continue
		}
		if first == nil || cmp.Or(a.claimed.Compare(first.claimed), a.next.Compare(first.next)) < 0 {
			first = a
		}
	}
	return first
}

// unseen returns the shards to look at now, by node.
func (all attendance) unseen(now time.Time) map[*node]attendance {
	var found map[*node]attendance
	for _, a := range all {
		if a.unseen && !a.busy && !a.next.After(now) {
			if found == nil {
				found = map[*node]attendance{}
			}
			found[a.node] = append(found[a.node], a)
		}
	}
	return found
}

// wake notes that a task with a score, in Redis ms, became the earliest of a shard. One
// that has not been looked at, or has failed, has a time already.
func (all attendance) wake(at int, score int64) {
	for _, a := range all {
		if a.shard == at && a.busy && (!a.woken || score < a.score) {
			a.woken, a.score = true, score
		}
		if a.shard != at || a.busy || a.heard.IsZero() {
			continue
		}
		if next := a.turn(time.UnixMilli(score)); a.next.IsZero() || next.Before(a.next) {
			a.next = next
		}
	}
}

// at returns when Redis's clock will show an instant, by this process's clock.
func (a *attended) at(instant time.Time) time.Time { return a.heard.Add(instant.Sub(a.now)) }

// turn returns when to claim what is due at an instant, by this process's clock: then,
// after a rest, or when the worker that claims here has left it for too long.
func (a *attended) turn(instant time.Time) time.Time {
	t := a.at(instant)
	if t.Before(a.other) {
		t = t.Add(grace)
		if t.After(a.other) {
			t = a.other
		}
	}
	if t.Before(a.rest) {
		t = a.rest
	}
	return t
}

// learn notes when the shard needs attention next, by Redis's clock, which was heard
// to show now.
func (a *attended) learn(heard, now, next time.Time) {
	a.heard, a.now, a.unseen, a.next = heard, now, false, time.Time{}
	a.retry.Reset()
	if !next.IsZero() {
		a.next = a.turn(next)
	}
}

// learnClaimed notes what a claim told that began at asked and was heard at heard. There
// is no rest where it left something due.
func (a *attended) learnClaimed(asked, heard time.Time, b shard.Batch) {
	a.rest, a.other = time.Time{}, time.Time{}
	if !b.Attended.IsZero() {
		a.other = heard.Add(b.Attended.Sub(b.Now))
	} else if b.Next.After(b.Now) {
		a.rest = asked.Add(min(restFactor*heard.Sub(asked), mostRest))
	}
	a.learn(heard, b.Now, b.Next)
}

// fail backs off from the shard: what failed, a look or a claim, is done again then.
func (a *attended) fail(pause time.Duration) {
	a.heard, a.next = time.Time{}, time.Now().Add(pause)
}

// waiters are the workers of a topic that wait for tasks.
type waiters struct {
	mu  sync.Mutex
	all map[*waiter]struct{}
}

// waiter is told of tasks that become the earliest of the shards it attends.
type waiter struct {
	of       *waiters
	notified chan struct{}
	attends  map[int]bool
	scores   map[int]int64 // by shard; of.mu is held
}

func newWaiters() *waiters { return &waiters{all: map[*waiter]struct{}{}} }

// add returns a waiter for some shards; remove it when they are left.
func (w *waiters) add(shards ...int) *waiter {
	one := &waiter{of: w, notified: make(chan struct{}, 1), attends: map[int]bool{}, scores: map[int]int64{}}
	for _, at := range shards {
		one.attends[at] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[one] = struct{}{}
	return one
}

// notify tells all that attend a shard of a score, in Redis ms.
func (w *waiters) notify(shard int, score int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all {
		if !one.attends[shard] {
			continue
		}
		if before, there := one.scores[shard]; !there || score < before {
			one.scores[shard] = score
		}
		kick(one.notified)
	}
}

// kick tells whoever receives from a channel with room for one that there is something to
// do.
func kick(receiver chan<- struct{}) {
	select {
	case receiver <- struct{}{}:
	default:
	}
}

func (w *waiter) remove() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	delete(w.of.all, w)
}

// take returns the earliest score of each shard that the waiter was told of since the
// last call.
func (w *waiter) take() map[int]int64 {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	scores := w.scores
	w.scores = map[int]int64{}
	return scores
}
