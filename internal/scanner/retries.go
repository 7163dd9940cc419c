package scanner

import (
	"maps"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/shard"
)

const (
	// retryShare is the divisor for rounding: the time of a retry is rounded to that part
	// of its delay, at most. So the tasks that wait form some hundred groups, however
	// many they are.
	retryShare = 16
	// retryLinger is how long the due times of a group count after its time. By then the
	// scanner that claimed its tasks has reported them in a heartbeat or released them.
	retryLinger = balance.Silence
)

// retries knows the tasks of a topic that the broker didn't accept and that this scanner
// released for another attempt. In their shards they look like tasks that are due later.
// Without retries, a topic that can't deliver anything would show no backlog and no
// lateness. It is safe for concurrent use.
//
// A released task waits in a group for its time. This scanner doesn't know which scanner
// claims it then. So it counts the tasks that it released until their time has come, and
// the retried tasks that it has in flight itself.
type retries struct {
	began time.Time // times count from here

	mu       sync.Mutex
	waiting  map[time.Duration]retryGroup // by the time of the retry, since began
	inFlight map[shard.Lease]retryFlight
	outcome  forward.Outcome // of the newest task that was released
	reason   string          // what the broker said about it
	at       time.Time       // when that was
}

// retryGroup is a group of tasks whose time comes together.
type retryGroup struct {
	tasks  int64
	oldest retryFlight
}

// retryFlight is a retried task that this scanner has claimed and not settled.
type retryFlight struct {
	shard int
	due   time.Time // retries by the broker do not change it
}

func newRetries() *retries {
	return &retries{began: time.Now(), waiting: map[time.Duration]retryGroup{}, inFlight: map[shard.Lease]retryFlight{}}
}

// claimed notes the tasks of a batch that had an attempt before.
func (r *retries) claimed(at int, tasks []shard.Claimed) {
	for i := range tasks {
		if task := &tasks[i]; task.Attempt > 1 {
			r.mu.Lock()
			r.inFlight[task.Lease()] = retryFlight{at, task.Due}
			r.mu.Unlock()
		}
	}
}

// resolved notes that a task is no longer in flight.
func (r *retries) resolved(i item) {
	if i.claimed.Attempt > 1 {
		r.mu.Lock()
		delete(r.inFlight, i.lease())
		r.mu.Unlock()
	}
}

// released notes that the broker didn't accept a task, which is retried after a delay.
func (r *retries) released(i item, back shard.Release, outcome forward.Outcome) {
	now := time.Now()
	share := max(back.Delay/retryShare, time.Millisecond)
	when := (now.Sub(r.began) + back.Delay).Round(powerOfTwo(share))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tidyLocked(now)
	g := r.waiting[when]
	if g.tasks++; g.tasks == 1 || i.claimed.Due.Before(g.oldest.due) {
		g.oldest = retryFlight{i.claim.shard, i.claimed.Due}
	}
	r.waiting[when] = g
	r.outcome, r.reason, r.at = outcome, back.Reason, now
}

// powerOfTwo returns the largest power of two in milliseconds that is not above d. Times
// that are rounded to such multiples coincide even if their delays differ.
func powerOfTwo(d time.Duration) time.Duration {
	p := time.Millisecond
	for 2*p <= d {
		p *= 2
	}
	return p
}

// tidyLocked removes the groups whose time came more than retryLinger ago; r.mu is held.
func (r *retries) tidyLocked(now time.Time) {
	past := now.Sub(r.began) - retryLinger
	maps.DeleteFunc(r.waiting, func(when time.Duration, _ retryGroup) bool { return when <= past })
}

// count returns how many tasks wait for another attempt or are in flight for one.
func (r *retries) count() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := int64(len(r.inFlight))
	if len(r.waiting) == 0 {
		return n
	}
	now := time.Since(r.began)
	for when, g := range r.waiting {
		if when > now {
			n += g.tasks
		}
	}
	return n
}

// last returns the outcome of the newest task that was released. It means nothing if
// there are none.
func (r *retries) last() forward.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcome
}

// addToNote adds the retries to what this scanner reports about the topic.
func (r *retries) addToNote(n *balance.TopicNote) {
	oldest := r.oldest()
	n.Retrying = r.count()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, due := range oldest {
		if n.RetryingSince.IsZero() || due.Before(n.RetryingSince) {
			n.RetryingSince = due.UTC()
		}
	}
	if n.Retrying > 0 {
		n.RetryReason, n.RetryReasonAt = r.reason, r.at.UTC()
	}
}

// oldest returns the earliest original due time by shard. The earliest of all shards is
// exact. A shard's own may be too late, or missing, if its task is in a group with an
// earlier task of another shard.
func (r *retries) oldest() map[int]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting)+len(r.inFlight) == 0 {
		return nil
	}
	r.tidyLocked(time.Now())
	all := map[int]time.Time{}
	add := func(f retryFlight) {
		if before, there := all[f.shard]; !there || f.due.Before(before) {
			all[f.shard] = f.due
		}
	}
	for _, g := range r.waiting {
		add(g.oldest)
	}
	for _, f := range r.inFlight {
		add(f)
	}
	return all
}
