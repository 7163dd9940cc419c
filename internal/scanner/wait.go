package scanner

import (
	"cmp"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

// polledShard is one shard that a worker polls for a tick.
type polledShard struct {
	shard int
	node  *node // that holds it, as last known
	// next is when to look at the shard, or else to claim from it, by this process's
	// clock. Zero means not before a wake-up.
	next time.Time
	// unseen shards are looked at, which reserves and leases nothing.
	unseen bool
	// heard is when Redis's clock showed now; zero means that it isn't known.
	heard, now time.Time
	claimed    time.Time // when this tick last claimed from it.
	rest       time.Time // no claim before it, so that more comes due meanwhile.
	other      time.Time // until when another worker is the primary, by this process's clock; zero: none is.
	retry      retry.Backoff
	// busy means that a look or a claim is under way. woken means that meanwhile a task
	// with this score became the earliest.
	busy, woken bool
	score       int64
}

// ready reports whether the worker may look at the shard or claim from it when its time
// comes.
func (a *polledShard) ready() bool {
	return !a.busy && (a.unseen || a.node == nil || a.node.left < mostLeft)
}

// grace is how long a worker leaves due tasks to the primary of the shard. The primary
// rests for less than that between two claims.
const grace = 15 * time.Millisecond

// A worker spends only a share of its time on claims of a shard. If a claim took d, the
// next one begins no sooner than restFactor x d after the beginning of the first. The
// limit of that time is mostRest. So when Redis and the machine are busier, more tasks
// share a claim. When they aren't, tasks don't wait. Network cards moderate their
// interrupts in this way. See docs/adr/0014.
const (
	restFactor = 4
	mostRest   = 5 * time.Millisecond
)

// polledShards is the shards that a worker polls in a tick.
type polledShards []*polledShard

// first returns the shard whose time comes first; nil if none has a time.
func (all polledShards) first() (first *polledShard) {
	for _, a := range all {
		if a.ready() && !a.next.IsZero() && (first == nil || a.next.Before(first.next)) {
			first = a
		}
	}
	return first
}

// due returns the shard to claim from now; nil if no shard's time has come. Among those
// whose time has come, it chooses the shard that was claimed from longest ago. So a shard
// with an old backlog doesn't delay the others.
func (all polledShards) due(now time.Time) (first *polledShard) {
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
func (all polledShards) unseen(now time.Time) map[*node]polledShards {
	var found map[*node]polledShards
	for _, a := range all {
		if a.unseen && !a.busy && !a.next.After(now) {
			if found == nil {
				found = map[*node]polledShards{}
			}
			found[a.node] = append(found[a.node], a)
		}
	}
	return found
}

// wake notes that a task with this score, in Redis ms, became the earliest of a shard. If
// a call about the shard is under way, the score is kept for its end. A shard that wasn't
// looked at, or that failed, has a time already.
func (all polledShards) wake(at int, score int64) {
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
func (a *polledShard) at(instant time.Time) time.Time { return a.heard.Add(instant.Sub(a.now)) }

// turn returns when to claim a task that is due at an instant, by this process's clock.
// That is when it is due, but not before the shard's rest is over. If another worker is
// the primary, it has grace more time.
func (a *polledShard) turn(instant time.Time) time.Time {
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

// learn notes when the shard needs attention next; zero means not before a wake-up. next
// is by Redis's clock, which showed now when the answer was heard.
func (a *polledShard) learn(heard, now, next time.Time) {
	a.heard, a.now, a.unseen, a.next = heard, now, false, time.Time{}
	a.retry.Reset()
	if !next.IsZero() {
		a.next = a.turn(next)
	}
}

// learnClaimed notes the answer to a claim that was sent at asked and answered at heard.
// The shard doesn't rest if the claim left something due.
func (a *polledShard) learnClaimed(asked, heard time.Time, b shard.Batch) {
	a.rest, a.other = time.Time{}, time.Time{}
	if !b.Polled.IsZero() {
		a.other = heard.Add(b.Polled.Sub(b.Now))
	} else if b.Next.After(b.Now) {
		a.rest = asked.Add(min(restFactor*heard.Sub(asked), mostRest))
	}
	a.learn(heard, b.Now, b.Next)
}

// fail backs off from the shard. The look or claim that failed is repeated after pause.
func (a *polledShard) fail(pause time.Duration) {
	a.heard, a.next = time.Time{}, time.Now().Add(pause)
}

// waiters are the workers of a topic that wait for tasks.
type waiters struct {
	mu  sync.Mutex
	all map[*waiter]struct{}
}

// waiter is notified of tasks that become the earliest of the shards that it polls.
type waiter struct {
	of       *waiters
	notified retry.Signal
	polls    map[int]bool
	scores   map[int]int64 // by shard; of.mu protects it
}

func newWaiters() *waiters { return &waiters{all: map[*waiter]struct{}{}} }

// add returns a waiter for some shards. Remove it when the worker leaves them.
func (w *waiters) add(shards ...int) *waiter {
	one := &waiter{of: w, notified: retry.NewSignal(), polls: map[int]bool{}, scores: map[int]int64{}}
	for _, at := range shards {
		one.polls[at] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[one] = struct{}{}
	return one
}

// notify passes a score, in Redis ms, to all waiters that poll a shard.
func (w *waiters) notify(shard int, score int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all {
		if !one.polls[shard] {
			continue
		}
		if before, there := one.scores[shard]; !there || score < before {
			one.scores[shard] = score
		}
		one.notified.Send()
	}
}

func (w *waiter) remove() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	delete(w.of.all, w)
}

// take returns the earliest score of each shard that came since the last call.
func (w *waiter) take() map[int]int64 {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	scores := w.scores
	w.scores = map[int]int64{}
	return scores
}
