package scanner

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

// settler removes confirmed tasks from Redis and gives the others back, in
// batches: while one batch is under way the next one gathers. What Redis can't
// be told of now is tried again until it hears; that holds up the window, and so
// the claims, and so bounds the memory.
type settler struct {
	store  *shard.Topic
	window *window
	told   func(operation string, err error) // of each try's outcome

	mu      sync.Mutex
	pending map[int]*settlement
	kick    chan struct{}
	under   int // shards' settlements under way
	idle    chan struct{}
}

// settlement is what is to be done in one shard.
type settlement struct {
	settle  []shard.Lease
	release []shard.Release
	retry   retry.Backoff
	rest    time.Time // not before it: Redis could not be told of the shard's last ones
}

func newSettler(t *shard.Topic, w *window, told func(string, error)) *settler {
	return &settler{
		store: t, window: w, told: told,
		pending: map[int]*settlement{}, kick: make(chan struct{}, 1), idle: make(chan struct{}),
	}
}

func (s *settler) settle(at int, l shard.Lease) {
	s.add(at, func(p *settlement) { p.settle = append(p.settle, l) })
}

func (s *settler) release(at int, r shard.Release) {
	s.add(at, func(p *settlement) { p.release = append(p.release, r) })
}

func (s *settler) add(at int, change func(*settlement)) {
	s.mu.Lock()
	p := s.pending[at]
	if p == nil {
		p = &settlement{}
		s.pending[at] = p
	}
	change(p)
	s.mu.Unlock()
	s.wake()
}

func (s *settler) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// settlers is how many shards of a topic are settled at the same time.
const settlers = 4

// run works until ctx ends.
func (s *settler) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
			s.round(ctx)
		}
	}
}

// round settles what is pending.
func (s *settler) round(ctx context.Context) {
	var work errgroup.Group
	work.SetLimit(settlers)
	for at, p := range s.take() {
		work.Go(func() error { s.carryOut(ctx, at, p); return nil })
	}
	_ = work.Wait() // again has noted what failed
	s.rest()
}

// take are the settlements that don't rest.
func (s *settler) take() map[int]*settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	work, now := map[int]*settlement{}, time.Now()
	for at, p := range s.pending {
		if !now.Before(p.rest) {
			work[at] = p
			delete(s.pending, at)
		}
	}
	s.under = len(work)
	return work
}

// rest notes the end of a round and tells drain if nothing is left.
func (s *settler) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under = 0
	if len(s.pending) == 0 {
		close(s.idle)
		s.idle = make(chan struct{})
	}
}

func (s *settler) carryOut(ctx context.Context, at int, p *settlement) {
	if len(p.settle) > 0 {
		if _, err := s.store.Shard(at).Settle(ctx, p.settle); err != nil {
			s.again(at, p, "settle", err)
			return
		}
		s.told("settle", nil)
		s.window.free(len(p.settle))
		p.settle = nil
	}
	if len(p.release) > 0 {
		if _, err := s.store.Shard(at).Release(ctx, p.release); err != nil {
			s.again(at, p, "release", err)
			return
		}
		s.told("release", nil)
		s.window.free(len(p.release))
	}
}

// again puts back what Redis was not told of, to rest for a while: other shards are
// settled meanwhile. A part that it was told of is told twice then, which changes
// nothing.
func (s *settler) again(at int, p *settlement, operation string, err error) {
	s.told(operation, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	newer := s.pending[at]
	if newer == nil {
		newer = &settlement{}
		s.pending[at] = newer
	}
	newer.settle = append(newer.settle, p.settle...)
	newer.release = append(newer.release, p.release...)
	pause := p.retry.Next()
	newer.retry, newer.rest = p.retry, time.Now().Add(pause)
	time.AfterFunc(pause, s.wake) // at the end of the rest, or behind it
}

// drain waits until nothing is left to do, or ctx ends.
func (s *settler) drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		left, idle := len(s.pending)+s.under, s.idle
		s.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-idle:
		}
	}
}
