package forward

import (
	"context"
	"sync"
)

// broadcast wakes everybody who waits for a change.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// next is closed at the next change. Take it before looking at the state.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) fire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// tally counts the messages without a Result.
type tally struct {
	mu   sync.Mutex
	n    int
	zero broadcast
}

func (t *tally) add(n int) {
	t.mu.Lock()
	t.n += n
	empty := t.n == 0
	t.mu.Unlock()
	if empty {
		t.zero.fire()
	}
}

func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// wait returns when nothing is left, or with ctx's error.
func (t *tally) wait(ctx context.Context) error {
	for {
		zero := t.zero.next()
		if t.count() == 0 {
			return nil
		}
		select {
		case <-zero:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
