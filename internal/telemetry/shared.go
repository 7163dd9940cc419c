package telemetry

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// shared calls a function for many callers. The function may be slow or never return. One
// call runs at a time, and all callers get its answer. If it takes longer than the
// timeout, they get an error. No other call starts until it returned, so a call that
// hangs costs one goroutine.
type shared[T any] struct {
	// ask is the function. Its context ends with the timeout.
	ask func(ctx context.Context) (T, error)
	// timeout bounds how long a caller waits.
	timeout time.Duration
	// keep is how long an answer or an error is reused without another call.
	keep time.Duration
	// settled, if not nil, gets the error of each call, once and in order.
	settled func(error)

	mu   sync.Mutex
	last *call[T]
}

// call is one call, whose result all callers that wait for it share.
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
