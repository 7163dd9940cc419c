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
	// retryShare is which part of its delay the time of a retry is rounded to. So those
	// that wait are some hundred groups at most, however many tasks they are.
	retryShare = 16
	// retryLinger is how long the due times of a group count after its time: until whoever
	// claimed its tasks has said so in a heartbeat, or given them back.
	retryLinger = balance.Silence
)

// retries knows the tasks of a topic that the broker did not take and that this scanner
// gave back for another attempt. In their shards these look like tasks that are due later:
// without it, a topic none of whose tasks can be delivered has no backlog, and nothing
// in it is late. It is safe for concurrent use.
//
// What is given back waits in a group for its time; which scanner claims it then is not
// known here. So a scanner counts the tasks that it gave back until their time has come,
// and those that it has in flight again.
type retries struct {
	began time.Time // of the clock

	mu      sync.Mutex
	waiting map[time.Duration]retryGroup // by the time that has come for it, since began
	flying  map[shard.Lease]retryFlight
	outcome forward.Outcome // of the newest that was given back
	reason  string          // what the broker said of it
	at      time.Time       // when
}

// retryGroup is tasks whose time comes together.
type retryGroup struct {
	tasks  int64
	oldest retryFlight
}

// retryFlight is a task by what is told of it.
type retryFlight struct {
	shard int
	due   time.Time // its original one
}

func newRetries() *retries {
	return &retries{began: time.Now(), waiting: map[time.Duration]retryGroup{}, flying: map[shard.Lease]retryFlight{}}
}

// claimed notes the tasks of a batch that the broker did not take before.
func (r *retries) claimed(at int, tasks []shard.Claimed) {
	for i := range tasks {
		if task := &tasks[i]; task.Attempt > 1 {
			r.mu.Lock()
			r.flying[shard.Lease{ID: task.ID, Token: task.Token}] = retryFlight{at, task.Due}
			r.mu.Unlock()
		}
	}
}

// resolved notes that a task is in flight no more.
func (r *retries) resolved(i item) {
	if i.claimed.Attempt > 1 {
		r.mu.Lock()
		delete(r.flying, i.lease())
		r.mu.Unlock()
	}
}

// released notes that the broker did not take a task, which is tried again after a delay.
func (r *retries) released(i item, back shard.Release, outcome forward.Outcome) {
	now := time.Now()
	share := max(back.Delay/retryShare, time.Millisecond)
	when := (now.Sub(r.began) + back.Delay).Round(powerOfTwo(share))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tidyLocked(now)
	g := r.waiting[when]
	if g.tasks++; g.tasks == 1 || i.claimed.Due.Before(g.oldest.due) {
		g.oldest = retryFlight{i.delivery.shard, i.claimed.Due}
	}
	r.waiting[when] = g
	r.outcome, r.reason, r.at = outcome, back.Reason, now
}

// powerOfTwo is the largest power of two of milliseconds that is not above d: times that
// are rounded to such multiples fall together though their delays differ.
func powerOfTwo(d time.Duration) time.Duration {
	p := time.Millisecond
	for 2*p <= d {
		p *= 2
	}
	return p
}

// tidyLocked forgets the groups whose time came long enough ago; r.mu is held.
func (r *retries) tidyLocked(now time.Time) {
	past := now.Sub(r.began) - retryLinger
	maps.DeleteFunc(r.waiting, func(when time.Duration, _ retryGroup) bool { return when <= past })
}

// count returns how many tasks wait for another attempt, or are at it.
func (r *retries) count() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, now := int64(len(r.flying)), time.Since(r.began)
	for when, g := range r.waiting {
		if when > now {
			n += g.tasks
		}
	}
	return n
}

// last returns the outcome of the newest that was given back; of no use while there
// are none.
func (r *retries) last() forward.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcome
}

// note adds to what this scanner says of the topic.
func (r *retries) note(n *balance.TopicNote) {
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

// oldest returns the earliest original due times by shard. That of the topic is right;
// of a shard it may be later than the earliest, if an earlier one of another shard is
// tried again together with it.
func (r *retries) oldest() map[int]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
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
	for _, f := range r.flying {
		add(f)
	}
	return all
}
