package poll

import (
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/wake"
)

// polled is one shard that a poller polls in a tick.
type polled struct {
	shard int
	node  *node // that holds it, as last known
	// next is when to look at the shard, or else to claim from it, by this process's clock.
	// Zero means not before a wake-up.
	next time.Time
	// unseen: the shard is looked at then, which reserves and leases nothing.
	unseen bool
	// heard is when Redis's clock showed now; zero means that it isn't known.
	heard, now time.Time
	rest       time.Time // no claim before it, so that more comes due meanwhile
	other      time.Time // until when another scanner is the primary, by this process's clock; zero: none is
	retry      retry.Backoff
	// busy means that a look or a claim is under way. woken means that meanwhile a task with
	// this score became the earliest. again means that it must be looked at after the call.
	busy, woken, again bool
	score              int64

	place int  // in the queue's later
	due   bool // it is in the queue's due
}

// When implements wake.Timed.
func (a *polled) When() time.Time { return a.next }

// Place implements wake.Timed.
func (a *polled) Place() *int { return &a.place }

// Grace is how long a scanner leaves due tasks to the primary of the shard. The primary rests
// for less than that between two claims.
const Grace = 15 * time.Millisecond

// A scanner spends only a share of its time on claims of a shard. If a claim took d, the next
// one begins no sooner than restFactor x d after the beginning of the first. The limit of that
// time is mostRest. So when Redis and the machine are busier, more tasks share a claim. When
// they aren't, tasks don't wait. Network cards moderate their interrupts in this way. See
// docs/adr/0014.
const (
	restFactor = 4
	mostRest   = 5 * time.Millisecond
)

// at returns when Redis's clock will show an instant, by this process's clock.
func (a *polled) at(instant time.Time) time.Time { return a.heard.Add(instant.Sub(a.now)) }

// turn returns when to claim a task that is due at an instant, by this process's clock. That is
// when it is due, but not before the shard's rest is over. If another scanner is the primary,
// it has grace more time, and has most likely claimed the task then. So look reports that a look
// comes before the claim.
func (a *polled) turn(instant time.Time) (t time.Time, look bool) {
	t = a.at(instant)
	if t.Before(a.other) {
		t = t.Add(Grace)
		look = t.Before(a.other) && t.After(a.heard)
		if t.After(a.other) {
			t = a.other
		}
	}
	if t.Before(a.rest) {
		t = a.rest
	}
	return t, look
}

// learn notes when the shard needs attention next; zero means not before a wake-up. next is by
// Redis's clock, which showed now when the answer was heard.
func (a *polled) learn(heard, now, next time.Time) {
	a.heard, a.now, a.unseen, a.next = heard, now, false, time.Time{}
	a.retry.Reset()
	if !next.IsZero() {
		a.next, a.unseen = a.turn(next)
	}
}

// claimed notes the answer to a claim. A scanner whose claim found a task is the primary then. The
// shard doesn't rest if the claim left something due.
func (a *polled) claimed(answer Answer) {
	a.rest = time.Time{}
	switch {
	case !answer.Polled.IsZero():
		a.other = answer.Heard.Add(answer.Polled.Sub(answer.Now))
	case answer.Found > 0:
		a.other = time.Time{}
	}
	if answer.Polled.IsZero() && answer.Next.After(answer.Now) {
		a.rest = answer.Asked.Add(min(restFactor*answer.Heard.Sub(answer.Asked), mostRest))
	}
	a.learn(answer.Heard, answer.Now, answer.Next)
}

// fail backs off from the shard. The look or claim that failed is repeated after pause.
func (a *polled) fail(pause time.Duration) {
	a.heard, a.next = time.Time{}, time.Now().Add(pause)
}

// wake notes that a task with this score, in Redis ms, became the earliest. If a call about the
// shard is under way, the score is kept for its end. A shard that wasn't looked at, or that
// failed, has a time already.
func (a *polled) wake(score int64) {
	switch {
	case a.busy:
		if !a.woken || score < a.score {
			a.woken, a.score = true, score
		}
	case a.heard.IsZero():
	default:
		if next, look := a.turn(time.UnixMilli(score)); a.next.IsZero() || next.Before(a.next) {
			a.next, a.unseen = next, look
		}
	}
}

// ended notes that a call about the shard is over. If it must be looked at again, that is now,
// or after the pause of a failed call.
func (a *polled) ended() {
	a.busy = false
	if a.woken {
		a.woken = false
		a.wake(a.score)
	}
	if a.again && !a.heard.IsZero() {
		a.unseen, a.next = true, time.Now()
	}
	a.again = false
}

// queue holds the shards of a tick that have a time and aren't busy. Those whose time has come
// are served first come, first served. So a shard with an old backlog doesn't delay the others.
type queue struct {
	later wake.ByTime[*polled]
	due   []*polled
}

// put puts a shard in its place after its time has changed.
func (q *queue) put(a *polled) {
	if a.busy || a.due || a.next.IsZero() {
		q.later.Remove(a)
	} else {
		q.later.Put(a)
	}
}

// ripen takes out the unseen shards whose time has come, by node. The others become due.
func (q *queue) ripen(now time.Time) (unseen map[*node][]*polled) {
	for a, ripe := q.later.Take(now); ripe; a, ripe = q.later.Take(now) {
		if a.due = !a.unseen; a.due {
			q.due = append(q.due, a)
			continue
		}
		if unseen == nil {
			unseen = map[*node][]*polled{}
		}
		unseen[a.node] = append(unseen[a.node], a)
	}
	return unseen
}

// take takes out the due shard that waits longest, of those that may be served; nil if there is
// none.
func (q *queue) take(may func(*polled) bool) *polled {
	i := slices.IndexFunc(q.due, may)
	if i < 0 {
		return nil
	}
	a := q.due[i]
	a.due = false
	q.due = slices.Delete(q.due, i, i+1)
	return a
}
