// Package wake lets goroutines wait: for a signal to one of them, for a broadcast to all,
// or for an alarm at a time. It also does work that a broadcast makes necessary.
package wake

import "sync"

// Signal wakes the one goroutine that receives from it. It holds at most one wake-up, so
// those sent before the goroutine receives are one.
type Signal chan struct{}

// NewSignal returns a signal that holds no wake-up.
func NewSignal() Signal { return make(Signal, 1) }

// Send wakes the receiver. It never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Broadcast tells all waiters about a change. The zero value is ready to use.
type Broadcast struct {
	mu        sync.Mutex
	ch        chan struct{}
	followers []*follower
	fires     uint64
}

// Next returns a channel that is closed at the next change. Call it before reading the
// state that may change.
func (b *Broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// Fires returns how many changes were announced so far.
func (b *Broadcast) Fires() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fires
}

// Fire announces a change.
func (b *Broadcast) Fire() {
	b.mu.Lock()
	b.fires++
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
	followers := b.followers
	b.mu.Unlock()
	for _, f := range followers {
		f.look()
	}
}
