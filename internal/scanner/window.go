package scanner

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

// budget bounds the memory of all tasks in flight, in bytes. Half of it belongs to the
// topics in equal shares. The rest goes to the first that ask, and no topic gets more
// than a quarter of the whole. So a topic with large payloads and a broker that doesn't
// confirm leaves most of the budget to the others. Even if several such topics have taken
// the rest, each other topic still has its share. A task that is larger than what is free
// goes alone, or it would never go. So each claim may exceed the budget by one task.
//
// Its mutex protects the windows too.
type budget struct {
	mu     sync.Mutex
	limit  int
	topics map[*window]struct{}
	short  []*window // those whose first in line waits for bytes; first come, first served
}

func newBudget(limit int) *budget { return &budget{limit: limit, topics: map[*window]struct{}{}} }

// share returns the bytes that belong to each topic; b.mu is held.
func (b *budget) share() int {
	return max(1, min(b.limit/2/max(1, len(b.topics)), b.limit/parts))
}

// freeFor returns how many more bytes a topic may have; b.mu is held. A topic with
// nothing in flight can have its whole share, even if others hold part of it from when
// there were fewer topics.
func (b *budget) freeFor(w *window) int {
	share := b.share()
	all, common := b.limit, b.limit-share*len(b.topics)
	for other := range b.topics {
		all -= other.bytes
		common -= max(0, other.bytes-share)
	}
	if w.bytes == 0 {
		all = max(all, share)
	}
	own := max(0, share-w.bytes)
	return min(own+max(0, common), b.limit/parts-w.bytes, all)
}

// offer serves the topics that wait for bytes; b.mu is held.
func (b *budget) offer() {
	waiting := b.short
	b.short = nil
	for _, w := range waiting {
		w.short = false
		w.admit()
	}
}

// inUse returns how many bytes are taken, including those reserved for claims under way.
func (b *budget) inUse() (bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.topics {
		bytes += w.bytes
	}
	return bytes
}

// window bounds the tasks of one topic that this scanner has claimed and not settled. It
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
type window struct {
	budget *budget

	// budget.mu protects these:
	size  int
	held  int            // tasks that are claimed or about to be, and not settled.
	ahead int            // of these, tasks that are not written to RabbitMQ.
	bytes int            // of tasks without an outcome and of claims under way.
	line  []*reservation // first come, first served.
	short bool           // the first in line lacks only bytes.
}

// room says how much a worker may claim.
type room struct {
	tasks int
	bytes int // of the budget, including taskBytes for each task
}

// records returns how many bytes of records fit.
func (r room) records() int { return max(1, r.bytes-r.tasks*taskBytes) }

// reservation waits in line for room.
type reservation struct {
	want int       // tasks
	got  chan room // has space for one room, and gets one
}

// window returns a topic's window. Close it when the topic is no longer served.
func (b *budget) window(size int) *window {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &window{budget: b, size: size}
	b.topics[w] = struct{}{}
	return w
}

// close gives the topic's part of the budget back, for the others.
func (w *window) close() {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	delete(w.budget.topics, w)
	w.budget.offer()
}

// reserve takes room for up to want tasks and waits for its turn. To avoid tiny claims,
// it waits until all of want, or a quarter of the limit, is free. It returns ctx's error,
// and takes nothing, if ctx ends first.
func (w *window) reserve(ctx context.Context, want int) (room, error) {
	r := w.join(want)
	select {
	case got := <-r.got:
		return got, nil
	case <-ctx.Done():
		w.leave(r)
		return room{}, ctx.Err()
	}
}

// join adds a reservation to the end of the line.
func (w *window) join(want int) *reservation {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	r := &reservation{want: want, got: make(chan room, 1)}
	w.line = append(w.line, r)
	w.admit()
	return r
}

// leave takes a reservation out of the line, or gives back what it got meanwhile. The
// next in line may then be served.
func (w *window) leave(r *reservation) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	select {
	case got := <-r.got:
		w.give(got.tasks, got.tasks, got.bytes)
	default:
		w.line = slices.DeleteFunc(w.line, func(other *reservation) bool { return other == r })
		w.admit()
	}
}

// most returns how many tasks may be held, and how many of them ahead; the mutex is held.
func (w *window) most() (held, ahead int) { return 2 * w.size, max(1, w.size/2) }

// admit gives room to the first in line while there is enough; the mutex is held.
// Everything that makes room calls it, so nobody waits first in line while there is room.
func (w *window) admit() {
	for len(w.line) > 0 {
		got, ok := w.roomFor(w.line[0].want)
		if !ok {
			return
		}
		w.held, w.ahead, w.bytes = w.held+got.tasks, w.ahead+got.tasks, w.bytes+got.bytes
		w.line[0].got <- got
		w.line = slices.Delete(w.line, 0, 1)
	}
}

// roomFor returns the room for the first in line; false if there isn't enough. The mutex
// is held.
func (w *window) roomFor(want int) (room, bool) {
	held, ahead := w.most()
	tasks := min(want, held-w.held, ahead-w.ahead)
	if tasks < max(1, min(want, ahead/4)) {
		return room{}, false
	}
	all := tasks*taskBytes + claimBytes
	bytes := min(all, w.budget.freeFor(w))
	if w.bytes > 0 && bytes < min(all, max(1, w.budget.share()/4)) {
		if !w.short {
			w.short = true
			w.budget.short = append(w.budget.short, w)
		}
		return room{}, false
	}
	return room{tasks: max(1, min(tasks, bytes/2/taskBytes)), bytes: bytes}, true
}

// give gives back what was taken; the mutex is held.
func (w *window) give(held, ahead, bytes int) {
	w.held, w.ahead, w.bytes = w.held-held, w.ahead-ahead, w.bytes-bytes
	w.admit()
	if bytes > 0 {
		w.budget.offer()
	}
}

// keepRoom gives back all of r except room for tasks and bytes, which it returns.
func (w *window) keepRoom(r room, tasks, bytes int) room {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	w.give(r.tasks-tasks, r.tasks-tasks, r.bytes-bytes)
	return room{tasks: tasks, bytes: bytes}
}

// free gives back what tasks no longer take. settled tasks had their outcome written to
// Redis. written tasks were written to RabbitMQ, or never will be. bytes belong to tasks
// whose outcome is known.
func (w *window) free(settled, written, bytes int) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	w.give(settled, written, bytes)
}

func (w *window) resize(size int) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	w.size = size
	w.admit()
}

// share returns how many tasks take an eighth of the window.
func (w *window) share() int {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	return max(1, w.size/8)
}

// own returns how many bytes of the budget belong to this window.
func (w *window) own() int {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	return w.budget.share()
}

// inUse returns how many tasks are held, and their bytes of the budget.
func (w *window) inUse() (tasks, bytes int) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	return w.held, w.bytes
}

// bytesOf returns how many bytes of the budget claimed tasks take.
func bytesOf(tasks []shard.Claimed) (bytes int) {
	for i := range tasks {
		bytes += taskBytes + len(tasks[i].Payload) + tasks[i].AMQPBytes
		for k, v := range tasks[i].Headers {
			bytes += len(k) + len(v)
		}
	}
	return bytes
}
