package scanner

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/shard"
)

// settler removes confirmed tasks from Redis and gives the others back, in
// batches: while one batch is under way the next one gathers. What Redis can't
// be told of now is tried again until it hears; that holds up the window, and so
// the claims, and so bounds the memory.
type settler struct {
	shard  *shard.Topic
	window *window
	failed func(operation string, err error)

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
}

func newSettler(t *shard.Topic, w *window, failed func(string, error)) *settler {
	return &settler{
		shard: t, window: w, failed: failed,
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
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// settlers is how many shards of a topic are settled at the same time.
const settlers = 4

// run works until ctx ends.
func (s *settler) run(ctx context.Context) {
	var retry backoff
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
		if s.round(ctx) {
			retry.reset()
			continue
		}
		retry.wait(ctx)
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
}

// round settles what is pending, and answers whether all of it went well.
func (s *settler) round(ctx context.Context) bool {
	var work errgroup.Group
	work.SetLimit(settlers)
	for at, p := range s.take() {
		work.Go(func() error { return s.carryOut(ctx, at, p) })
	}
	err := work.Wait()
	s.rest()
	return err == nil
}

func (s *settler) take() map[int]*settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	work := s.pending
	s.pending = make(map[int]*settlement, len(work))
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

func (s *settler) carryOut(ctx context.Context, at int, p *settlement) error {
	if len(p.settle) > 0 {
		if _, err := s.shard.Settle(ctx, at, p.settle); err != nil {
			return s.again(at, p, "settle", err)
		}
		s.window.free(len(p.settle))
		p.settle = nil
	}
	if len(p.release) > 0 {
		if _, err := s.shard.Release(ctx, at, p.release); err != nil {
			return s.again(at, p, "release", err)
		}
		s.window.free(len(p.release))
	}
	return nil
}

// again puts back what Redis was not told of. A part that it was told of is told
// twice then, which changes nothing.
func (s *settler) again(at int, p *settlement, operation string, err error) error {
	s.failed(operation, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	newer := s.pending[at]
	if newer == nil {
		newer = &settlement{}
		s.pending[at] = newer
	}
	newer.settle = append(newer.settle, p.settle...)
	newer.release = append(newer.release, p.release...)
	return err
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
