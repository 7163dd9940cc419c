package scanner

import (
	"context"
	"slices"
	"sync"

	"github.com/duefleet/duefleet/internal/shard"
)

const (
	// claimBytes is what the records of one claim take at most, whatever is free, so
	// that a claim holds up no other of its shard for long.
	claimBytes = 1 << 20
	// taskBytes is what a task in flight takes beside its payload and headers, in
	// bytes: the claimed task, the message, its confirmation, and its lease while it
	// waits to be settled.
	taskBytes = 1 << 10
	// parts of the budget: a topic may have one.
	parts = 4
)

// budget bounds the memory of all tasks in flight, in bytes. Half of it belongs to the
// topics in equal shares; the rest goes to whoever asks first, and no topic gets more than
// a quarter of the whole. So the large payloads of one topic, whose broker doesn't confirm
// them, leave most of it to the others, and when several such topics have taken all that
// isn't theirs, each of the others still has its share. The budget is exceeded by no more
// than one task a claim: one that is larger than what is free goes alone, or it would
// never go.
//
// Its mutex is that of the windows too.
type budget struct {
	mu     sync.Mutex
	limit  int
	topics map[*window]struct{}
	short  []*window // whose first in line waits for bytes; first come, first served
}

func newBudget(limit int) *budget { return &budget{limit: limit, topics: map[*window]struct{}{}} }

// share is what belongs to each topic; b.mu is held.
func (b *budget) share() int {
	return max(1, min(b.limit/2/max(1, len(b.topics)), b.limit/parts))
}

// freeFor is how many bytes more a topic may have; b.mu is held. A share that others hold,
// from when there were fewer topics, comes back to one that has nothing in flight at
// least.
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

// offer serves the topics that waited for bytes; b.mu is held.
func (b *budget) offer() {
	waiting := b.short
	b.short = nil
	for _, w := range waiting {
		w.short = false
		w.admit()
	}
}

// inUse returns how many bytes are taken, those that are held for claims under way
// included.
func (b *budget) inUse() (bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.topics {
		bytes += w.bytes
	}
	return bytes
}

// window bounds the tasks of one topic that this scanner has claimed and not settled
// yet, in two parts. Tasks that RabbitMQ was not given yet are at most half of size:
// enough to claim while others are written, and few enough for the lease of none to
// suffer by the wait (a broker that takes half a window in more than a quarter of a
// lease has not confirmed a whole one in half of a lease, which is what the publisher
// waits for). All together are at most twice the size: the publisher alone holds those
// that RabbitMQ has not confirmed to the window, and as many again may be on the way to
// it and wait to be settled. So while Redis can't be told what became of tasks, no more
// are claimed.
//
// Beside that they take bytes of the scanner's budget.
//
// A worker that finds no room stands in line: room that is made goes to the first, and
// wakes nobody else. The size may change at any time.
type window struct {
	budget *budget

	// Of budget.mu:
	size  int
	held  int            // tasks that are claimed or about to be, and not settled
	ahead int            // of these, tasks that are not written to RabbitMQ yet
	bytes int            // of the tasks whose outcome isn't known, and of claims under way
	line  []*reservation // first come, first served
	short bool           // the first in line waits for bytes alone
}

// room is what a worker may claim.
type room struct {
	tasks int
	bytes int // of the budget, with taskBytes for each task
}

// records is how many bytes of records fit.
func (r room) records() int { return max(1, r.bytes-r.tasks*taskBytes) }

// reservation stands in line for room.
type reservation struct {
	want int       // tasks
	got  chan room // has space for it, and is written once
}

// window returns a topic's window; close it when the topic is not served any more.
func (b *budget) window(size int) *window {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &window{budget: b, size: size}
	b.topics[w] = struct{}{}
	return w
}

// close gives back what the topic has of the budget, for the others.
func (w *window) close() {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	delete(w.budget.topics, w)
	w.budget.offer()
}

// reserve takes room for up to want tasks, waiting for its turn and until a quarter of
// the window's parts or all that is wanted is free, so that a full window doesn't lead
// to tiny claims. It returns ctx's error, and takes nothing, if that ends first.
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

// leave takes a reservation out of the line, or gives back what it got meanwhile; the
// next in line may be served now.
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

// admit gives room to those in front for whom there is some; the mutex is held. All that
// makes room calls it, so nobody is first in line while there is room for it.
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

// roomFor returns what there is for the first in line; false: not enough. The mutex is
// held.
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

// keep gives back all of some room but what is needed for so many tasks and bytes, and
// returns that.
func (w *window) keep(r room, tasks, bytes int) room {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	w.give(r.tasks-tasks, r.tasks-tasks, r.bytes-bytes)
	return room{tasks: tasks, bytes: bytes}
}

// written notes tasks that are written to RabbitMQ, or never will be.
func (w *window) written(tasks int) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	w.give(0, tasks, 0)
}

// resolved notes that the outcome of tasks is known, whose memory is free.
func (w *window) resolved(bytes int) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	w.give(0, 0, bytes)
}

// settled notes tasks of which Redis was told.
func (w *window) settled(tasks int) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	w.give(tasks, 0, 0)
}

func (w *window) resize(size int) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	w.size = size
	w.admit()
}

// share is how many tasks take an eighth of the window.
func (w *window) share() int {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	return max(1, w.size/8)
}

// inUse returns how many tasks are held, and the bytes of the budget.
func (w *window) inUse() (tasks, bytes int) {
	w.budget.mu.Lock()
	defer w.budget.mu.Unlock()
	return w.held, w.bytes
}

// bytesOf is what claimed tasks take of the budget.
func bytesOf(tasks []shard.Claimed) (bytes int) {
	for i := range tasks {
		bytes += taskBytes + len(tasks[i].Payload)
		for k, v := range tasks[i].Headers {
			bytes += len(k) + len(v)
		}
	}
	return bytes
}
