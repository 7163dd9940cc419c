package scanner

import (
	"sync"

	"github.com/duefleet/duefleet/internal/wake"
)

// waiters are the workers of a topic that wait for tasks.
type waiters struct {
	mu  sync.Mutex
	all map[*waiter]struct{}
}

// waiter is notified of tasks that become the earliest of the shards that it polls.
type waiter struct {
	of       *waiters
	notified wake.Signal
	polls    map[int]bool
	scores   map[int]int64 // by shard; of.mu protects it
}

func newWaiters() *waiters { return &waiters{all: map[*waiter]struct{}{}} }

// add returns a waiter for some shards. Remove it when the worker leaves them.
func (w *waiters) add(shards ...int) *waiter {
	one := &waiter{of: w, notified: wake.NewSignal(), polls: map[int]bool{}, scores: map[int]int64{}}
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

// takeScores returns the earliest score of each shard that came since the last call.
func (w *waiter) takeScores() map[int]int64 {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	scores := w.scores
	w.scores = map[int]int64{}
	return scores
}
