package scanner

import (
	"context"
	"sync"
)

// windowBytes is the size of payloads that this scanner has in flight for one
// topic when it stops claiming more. Every worker may exceed it by one claim.
const windowBytes = 8 << 20

// window bounds the tasks of one topic that this scanner has claimed and not
// settled yet. Its size may change at any time.
type window struct {
	mu      sync.Mutex
	size    int
	used    int
	bytes   int           // of payloads that RabbitMQ has not confirmed yet
	changed chan struct{} // closed and replaced whenever room is made
}

func newWindow(size int) *window {
	return &window{size: size, changed: make(chan struct{})}
}

// reserve takes up to want places, waiting until a quarter of the window or all
// that is wanted is free, so that a full window doesn't lead to tiny claims.
func (w *window) reserve(ctx context.Context, want int) (int, error) {
	for {
		n, changed := w.try(want)
		if n > 0 {
			return n, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-changed:
		}
	}
}

func (w *window) try(want int) (int, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	free := w.size - w.used
	if free < max(1, min(want, w.size/4)) || w.bytes >= windowBytes {
		return 0, w.changed
	}
	n := min(want, free)
	w.used += n
	return n, nil
}

// free gives places back.
func (w *window) free(n int) {
	if n == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.used -= n
	w.wake()
}

// carry notes payloads that were claimed, or with a negative size those that are
// done with.
func (w *window) carry(bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += bytes
	if bytes < 0 {
		w.wake()
	}
}

func (w *window) resize(size int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.size = size
	w.wake()
}

func (w *window) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// inUse is how many places are taken.
func (w *window) inUse() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.used
}
