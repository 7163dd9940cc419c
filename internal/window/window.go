// Package window bounds the tasks that a scanner has claimed and not settled. A Window
// bounds their number for each topic, and a Budget bounds the memory of all of them.
package window

import (
	"context"
	"slices"
	"sync"

	"github.com/duefleet/duefleet/internal/shard"
)

const (
	// claimBytes bounds the records of one claim, whatever is free, so that a claim
	// doesn't block others of its shard for long.
	claimBytes = 1 << 20
	// taskBytes is how many bytes a task in flight takes besides its payload and headers.
	// They hold the claimed task, the message, its confirm, and its lease until it is
	// settled.
	taskBytes = 1 << 10
	// parts of the budget: a topic may have one.
	parts = 4
)

// Budget bounds the memory of all tasks in flight, in bytes. Half of it belongs to the
// topics in equal shares. The rest goes to the first that ask, and no topic gets more
// than a quarter of the whole. So a topic with large payloads and a broker that doesn't
// confirm leaves most of the budget to the others. Even if several such topics have taken
// the rest, each other topic still has its share. A task that is larger than what is free
// goes alone, or it would never go. So each claim may exceed the budget by one task.
//
// Its mutex protects the windows too.
type Budget struct {
	mu     sync.Mutex
	limit  int
	topics map[*Window]struct{}
	bytes  int       // of all topics
	above  int       // of all topics: what each has above its share
	short  []*Window // those whose first in line waits for bytes; first come, first served
}

// NewBudget returns a budget of that many bytes.
func NewBudget(limit int) *Budget { return &Budget{limit: limit, topics: map[*Window]struct{}{}} }

// share returns the bytes that belong to each topic; b.mu is held.
func (b *Budget) share() int {
	return max(1, min(b.limit/2/max(1, len(b.topics)), b.limit/parts))
}

// freeFor returns how many more bytes a topic may have; b.mu is held. A topic with
// nothing in flight can have its whole share, even if others hold part of it from when
// there were fewer topics.
func (b *Budget) freeFor(w *Window) int {
	share := b.share()
	all, common := b.limit-b.bytes, b.limit-share*len(b.topics)-b.above
	if w.bytes == 0 {
		all = max(all, share)
	}
	own := max(0, share-w.bytes)
	return min(own+max(0, common), b.limit/parts-w.bytes, all)
}

// add notes that a topic has more bytes, or fewer; b.mu is held.
func (b *Budget) add(w *Window, bytes int) {
	if _, there := b.topics[w]; !there { // it was closed, and its bytes don't count
		w.bytes += bytes
		return
	}
	share := b.share()
	b.above -= max(0, w.bytes-share)
	w.bytes, b.bytes = w.bytes+bytes, b.bytes+bytes
	b.above += max(0, w.bytes-share)
}

// recount counts what topics have above their shares, which are others now; b.mu is held.
func (b *Budget) recount() {
	if b.bytes == 0 { // and nothing above: thousands of topics may start
		return
	}
	b.bytes, b.above = 0, 0
	for w := range b.topics {
		b.bytes += w.bytes
		b.above += max(0, w.bytes-b.share())
	}
}

// offer serves the topics that wait for bytes; b.mu is held.
func (b *Budget) offer() {
	waiting := b.short
	b.short = nil
	for _, w := range waiting {
		w.short = false
		w.admit()
	}
}

// InUse returns how many bytes are taken, including those reserved for claims under way.
func (b *Budget) InUse() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

// Window bounds the tasks of one topic that this scanner has claimed and not settled. It
// has two limits.
//
// Tasks that aren't written to RabbitMQ are at most half of size. That is enough to claim
// some while others are written, and few enough for their leases. The publisher's confirm
// timeout is half a lease. A broker that takes longer than a quarter of a lease for half a
// window exceeds that timeout anyway.
//
// All tasks together are at most twice the size. The publisher allows size unconfirmed
// tasks; as many again may be on the way to it or wait to be settled. So while outcomes
// can't be written to Redis, no more tasks are claimed.
//
// Tasks also take bytes of the scanner's budget.
//
// A worker that finds no room waits in line. New room goes to the first in line, and
// wakes nobody else. The size may change at any time.
type Window struct {
	budget *Budget

	// budget.mu protects these:
	size  int
	held  int            // tasks that are claimed or about to be, and not settled.
	ahead int            // of these, tasks that are not written to RabbitMQ.
	bytes int            // of tasks without an outcome and of claims under way.
	line  []*reservation // first come, first served.
	short bool           // the first in line lacks only bytes.
}

// Room says how much a worker may claim.
type Room struct {
	Tasks int
	Bytes int // of the budget, including the overhead of each task
}

// Records returns how many bytes of records fit.
func (r Room) Records() int { return max(1, r.Bytes-r.Tasks*taskBytes) }

// reservation waits in line for room.
type reservation struct {
	want int       // tasks
	got  chan Room // has space for one room, and gets one
}

// Window returns a topic's window. Close it when the topic is no longer served.
func (b *Budget) Window(size int) *Window {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &Window{budget: b, size: size}
	b.topics[w] = struct{}{}
	b.recount()
	return w
}

// Close gives the topic's part of the budget back, for the others.
func (w *Window) Close() {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	delete(w.budget.topics, w)
	w.budget.recount()
	w.budget.offer()
}

// Reserve takes room for up to want tasks and waits for its turn. To avoid tiny claims,
// it waits until all of want, or a quarter of the limit, is free. It returns ctx's error,
// and takes nothing, if ctx ends first.
func (w *Window) Reserve(ctx context.Context, want int) (Room, error) {
	r := w.join(want)
	select {
	case got := <-r.got:
		return got, nil
	case <-ctx.Done():
		w.leave(r)
		return Room{}, ctx.Err()
	}
}

// join adds a reservation to the end of the line.
func (w *Window) join(want int) *reservation {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	r := &reservation{want: want, got: make(chan Room, 1)}
	w.line = append(w.line, r)
	w.admit()
	return r
}

// leave takes a reservation out of the line, or gives back what it got meanwhile. The
// next in line may then be served.
func (w *Window) leave(r *reservation) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	select {
	case got := <-r.got:
		w.give(got.Tasks, got.Tasks, got.Bytes)
	default:
		w.line = slices.DeleteFunc(w.line, func(other *reservation) bool { return other == r })
		w.admit()
	}
}

// most returns how many tasks may be held, and how many of them ahead; the mutex is held.
func (w *Window) most() (held, ahead int) { return 2 * w.size, max(1, w.size/2) }

// admit gives room to the first in line while there is enough; the mutex is held.
// Everything that makes room calls it, so nobody waits first in line while there is room.
func (w *Window) admit() {
	for len(w.line) > 0 {
		got, ok := w.roomFor(w.line[0].want)
		if !ok {
			return
		}
		w.held, w.ahead = w.held+got.Tasks, w.ahead+got.Tasks
		w.budget.add(w, got.Bytes)
		w.line[0].got <- got
		w.line = slices.Delete(w.line, 0, 1)
	}
}

// roomFor returns the room for the first in line; false if there isn't enough. The mutex
// is held.
func (w *Window) roomFor(want int) (Room, bool) {
	held, ahead := w.most()
	tasks := min(want, held-w.held, ahead-w.ahead)
	if tasks < max(1, min(want, ahead/4)) {
		return Room{}, false
	}
	all := tasks*taskBytes + claimBytes
	bytes := min(all, w.budget.freeFor(w))
	if w.bytes > 0 && bytes < min(all, max(1, w.budget.share()/4)) {
		if !w.short {
			w.short = true
			w.budget.short = append(w.budget.short, w)
		}
		return Room{}, false
	}
	return Room{Tasks: max(1, min(tasks, bytes/2/taskBytes)), Bytes: bytes}, true
}

// give gives back what was taken; the mutex is held.
func (w *Window) give(held, ahead, bytes int) {
	w.held, w.ahead = w.held-held, w.ahead-ahead
	w.budget.add(w, -bytes)
	w.admit()
	if bytes > 0 {
		w.budget.offer()
	}
}

// Keep gives back all of r except room for tasks and bytes, which it returns.
func (w *Window) Keep(r Room, tasks, bytes int) Room {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	w.give(r.Tasks-tasks, r.Tasks-tasks, r.Bytes-bytes)
	return Room{Tasks: tasks, Bytes: bytes}
}

// Free gives back what tasks no longer take. settled tasks had their outcome written to
// Redis. written tasks were written to RabbitMQ, or never will be. bytes belong to tasks
// whose outcome is known.
func (w *Window) Free(settled, written, bytes int) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	w.give(settled, written, bytes)
}

// Resize changes the size, in tasks.
func (w *Window) Resize(size int) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	w.size = size
	w.admit()
}

// Size returns the size, in tasks.
func (w *Window) Size() int {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	return w.size
}

// Own returns how many bytes of the budget belong to this window.
func (w *Window) Own() int {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	return w.budget.share()
}

// InUse returns how many tasks are held, and their bytes of the budget.
func (w *Window) InUse() (tasks, bytes int) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	return w.held, w.bytes
}

// Bytes returns how many bytes of the budget claimed tasks take.
func Bytes(tasks []shard.Claimed) (bytes int) {
	for i := range tasks {
		bytes += taskBytes + len(tasks[i].Payload) + tasks[i].AMQPBytes
		for k, v := range tasks[i].Headers {
			bytes += len(k) + len(v)
		}
	}
	return bytes
}
