package telemetry

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// shared asks a function that may be slow, or never answer, on behalf of many
// callers: one call at a time, whose answer all of them get. A call that took
// longer than the timeout is answered with an error, and no other is made
// before it came back, so that one that hangs costs one goroutine.
type shared[T any] struct {
	// ask is the function. Its context ends with the timeout.
	ask func(ctx context.Context) (T, error)
	// timeout bounds what a caller waits.
	timeout time.Duration
	// keep is how long an answer, or an error, is given again without asking.
	keep time.Duration
	// settled is told the outcome of each call, once, calls in their order. May be nil.
	settled func(error)

	mu   sync.Mutex
	last *call[T]
}

// call is one call of the function.
type call[T any] struct {
	done     chan struct{} // closed once value, err and at may be read
	value    T
	err      error
	at       time.Time
	returned atomic.Bool
}

func (s *shared[T]) get() (T, error) {
	c := s.board()
	<-c.done
	return c.value, c.err
}

func (s *shared[T]) board() *call[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.last.stale(s.keep) {
		s.last = s.start()
	}
	return s.last
}

func (s *shared[T]) start() *call[T] {
	c := &call[T]{done: make(chan struct{})}
	var once sync.Once
	settle := func(value T, err error) {
		once.Do(func() {
			if s.settled != nil {
				s.settled(err)
			}
			c.value, c.err, c.at = value, err, time.Now()
			close(c.done)
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	context.AfterFunc(ctx, func() {
		var zero T
		settle(zero, fmt.Errorf("no answer within %s: %w", s.timeout, context.DeadlineExceeded))
	})
	go func() {
		defer cancel()
		value, err := s.ask(ctx)
		c.returned.Store(true)
		settle(value, err)
	}()
	return c
}

func (c *call[T]) stale(keep time.Duration) bool {
	select {
	case <-c.done:
		return c.returned.Load() && time.Since(c.at) >= keep
	default:
		return false
	}
}
