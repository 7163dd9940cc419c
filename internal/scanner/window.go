package scanner

import (
	"context"
	"slices"
	"sync"
)

// windowBytes is the size of payloads that this scanner has in flight for one
// topic when it stops claiming more. Every worker may exceed it by one claim.
const windowBytes = 8 << 20

// window bounds the tasks of one topic that this scanner has claimed and not
// settled yet. Who finds it full stands in line: room that is made goes to the first,
// and wakes nobody else. Its size may change at any time.
type window struct {
	mu    sync.Mutex
	size  int
	used  int
	bytes int       // of payloads that RabbitMQ has not confirmed yet
	line  []*waiter // first come, first served
}

// waiter stands in line for places.
type waiter struct {
	want   int
	places chan int // what it got; has room for that, and is written once
}

func newWindow(size int) *window { return &window{size: size} }

// reserve takes up to want places, waiting for its turn and until a quarter of the
// window or all that is wanted is free, so that a full window doesn't lead to tiny
// claims. It returns ctx's error, and takes nothing, if that ends first.
func (w *window) reserve(ctx context.Context, want int) (int, error) {
	me := w.join(want)
	select {
	case n := <-me.places:
		return n, nil
	case <-ctx.Done():
		w.leave(me)
		return 0, ctx.Err()
	}
}

// join goes to the end of the line.
func (w *window) join(want int) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	me := &waiter{want: want, places: make(chan int, 1)}
	w.line = append(w.line, me)
	w.admit()
	return me
}

// leave goes out of the line, or gives back what was had meanwhile: whoever is next
// may be served now.
func (w *window) leave(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case n := <-me.places:
		w.used -= n
	default:
		w.line = slices.DeleteFunc(w.line, func(other *waiter) bool { return other == me })
	}
	w.admit()
}

// admit gives places to those in front for whom there is room; w.mu is held. All that
// makes room calls it, so nobody is first in line while there is room for it.
func (w *window) admit() {
	for len(w.line) > 0 {
		first, free := w.line[0], w.size-w.used
		if free < max(1, min(first.want, w.size/4)) || w.bytes >= windowBytes {
			return
		}
		n := min(first.want, free)
		w.used += n
		w.line = slices.Delete(w.line, 0, 1)
		first.places <- n
	}
}

// free gives places back.
func (w *window) free(n int) {
	if n == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.used -= n
	w.admit()
}

// carry notes payloads that were claimed, or with a negative size those that are
// done with.
func (w *window) carry(bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += bytes
	w.admit()
}

func (w *window) resize(size int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.size = size
	w.admit()
}

// inUse is how many places are taken.
func (w *window) inUse() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.used
}
