package scanner

import (
	"context"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
)

// settler removes confirmed tasks from Redis and releases the others, in batches. A batch
// gathers for settleInterval, or until it takes a share of the window. Each shard is
// settled separately, so one whose Redis hangs delays no other. Outcomes that can't be
// written to Redis now are retried until they are. Meanwhile their tasks stay in the
// window, which stops claims and so bounds the memory.
type settler struct {
	store  *shard.Topic
	router *router.Router // for runs that are parked
	window *window
	tried  func(operation string, err error) // called with the outcome of each attempt

	mu      sync.Mutex
	pending map[int]*settlement // by shard
	tasks   int                 // tasks that became pending since the last round began
	kicked  wake.Signal
	hurried wake.Signal  // what is pending must not gather any longer
	began   time.Time    // the last round
	under   map[int]bool // shards whose settlement waits in a queue or is under way
	queues  map[string]*queue
	idle    chan struct{}
	working sync.WaitGroup // goroutines that settle
}

// queue holds what is to be done in the shards of one node, so that a node that hangs
// delays no other.
type queue struct {
	waiting []job
	working int // goroutines that work on it
}

// job is one shard's settlement.
type job struct {
	shard      int
	settlement *settlement
}

// settlement holds what is to be done in one shard.
type settlement struct {
	settle  []shard.Lease
	release []shard.Release
	park    []parkedRun
	advance []shard.Advance
	retry   retry.Backoff
	rest    time.Time // not before it: the last attempt failed
}

// parkedRun is a run of a recurring task that the broker didn't accept. It is stored as a
// parked task of its own, before the recurring task goes on.
type parkedRun struct {
	requeue shard.Requeue
	advance shard.Advance
}

func newSettler(t *shard.Topic, tasks *router.Router, w *window, tried func(string, error)) *settler {
	return &settler{
		store: t, router: tasks, window: w, tried: tried,
		pending: map[int]*settlement{}, under: map[int]bool{}, queues: map[string]*queue{},
		kicked: wake.NewSignal(), hurried: wake.NewSignal(), idle: make(chan struct{}),
	}
}

// settle makes the removal of a task pending.
func (s *settler) settle(at int, l shard.Lease) {
	s.add(at, func(p *settlement) { p.settle = append(p.settle, l) })
}

// release makes the release of a task pending.
func (s *settler) release(at int, r shard.Release) {
	s.add(at, func(p *settlement) { p.release = append(p.release, r) })
}

// advance makes the settlement of a recurring task's run pending.
func (s *settler) advance(at int, a shard.Advance) {
	s.add(at, func(p *settlement) { p.advance = append(p.advance, a) })
}

// parkRun makes the parking of a recurring task's run pending.
func (s *settler) parkRun(at int, run parkedRun) {
	s.add(at, func(p *settlement) { p.park = append(p.park, run) })
}

// add adds a task to what is pending for a shard.
func (s *settler) add(at int, to func(*settlement)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to(s.of(at))
	s.tasks++
	s.kicked.Send()
	if s.tasks >= s.window.share() {
		s.hurried.Send()
	}
}

// of returns what is pending for a shard; s.mu is held.
func (s *settler) of(at int) *settlement {
	if s.pending[at] == nil {
		s.pending[at] = &settlement{}
	}
	return s.pending[at]
}

// settlers is how many shards of one node are settled at the same time.
const settlers = 4

// settleInterval is the time between two rounds that have little to do. Until then a
// delivered task does no harm in Redis. If the scanner is killed meanwhile, the task is
// delivered again.
const settleInterval = 20 * time.Millisecond

// run settles until ctx ends and all settlements under way have ended.
func (s *settler) run(ctx context.Context) {
	defer s.working.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kicked:
			s.gather(ctx)
			s.round(ctx)
		}
	}
}

// gather waits until it is time for the next round.
func (s *settler) gather(ctx context.Context) {
	s.mu.Lock()
	pause := time.Until(s.began.Add(settleInterval))
	s.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.hurried:
	case <-timer.C:
	}
}

// round starts everything that is pending and doesn't rest, and doesn't wait for it. A
// shard has at most one settlement under way. Tasks that become pending
// meanwhile gather.
func (s *settler) round(ctx context.Context) {
	for _, j := range s.takeJobs() {
		node := s.store.Shard(j.shard).Node(ctx)
		s.mu.Lock()
		if s.queues[node] == nil {
			s.queues[node] = &queue{}
		}
		q := s.queues[node]
		q.waiting = append(q.waiting, j)
		if q.working < settlers {
			q.working++
			s.working.Go(func() { s.workOff(ctx, node, q) })
		}
		s.mu.Unlock()
	}
}

// takeJobs returns the settlements that don't rest and whose shards have none under way. They
// are no longer pending.
func (s *settler) takeJobs() (all []job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.tasks, s.began = 0, now
	for at, p := range s.pending {
		if !s.under[at] && !now.Before(p.rest) {
			all = append(all, job{at, p})
			s.under[at] = true
			delete(s.pending, at)
		}
	}
	return all
}

// workOff carries out what waits in a queue until it is empty.
func (s *settler) workOff(ctx context.Context, node string, q *queue) {
	for {
		s.mu.Lock()
		if len(q.waiting) == 0 {
			if q.working--; q.working == 0 {
				delete(s.queues, node)
			}
			s.mu.Unlock()
			return
		}
		j := q.waiting[0]
		q.waiting = q.waiting[1:]
		s.mu.Unlock()
		s.carryOut(ctx, j.shard, j.settlement)
		s.ended(j.shard)
	}
}

// ended notes that a shard's settlement is over, and wakes drain when nothing is left.
func (s *settler) ended(at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.under, at)
	if s.pending[at] != nil {
		s.kicked.Send()
	}
	if len(s.pending)+len(s.under) == 0 {
		close(s.idle)
		s.idle = make(chan struct{})
	}
}

func (s *settler) carryOut(ctx context.Context, at int, p *settlement) {
	if len(p.settle) > 0 {
		_, err := s.store.Shard(at).Settle(ctx, p.settle)
		if s.tried("settle", err); err != nil {
			s.again(at, p)
			return
		}
		s.window.free(len(p.settle), 0, 0)
		p.settle = nil
	}
	if len(p.release) > 0 {
		_, err := s.store.Shard(at).Release(ctx, p.release)
		if s.tried("release", err); err != nil {
			s.again(at, p)
			return
		}
		s.window.free(len(p.release), 0, 0)
		p.release = nil
	}
	for len(p.park) > 0 {
		_, err := s.router.Requeue(ctx, p.park[0].requeue)
		if s.tried("release", err); err != nil {
			s.again(at, p)
			return
		}
		p.advance, p.park = append(p.advance, p.park[0].advance), p.park[1:]
	}
	if len(p.advance) > 0 {
		_, err := s.store.Shard(at).Advance(ctx, p.advance)
		if s.tried("settle", err); err != nil {
			s.again(at, p)
			return
		}
		s.window.free(len(p.advance), 0, 0)
	}
}

// again makes a settlement pending that Redis didn't acknowledge. It rests for a while,
// and other shards are settled meanwhile. A part that Redis did carry out is carried out
// twice, which changes nothing.
func (s *settler) again(at int, p *settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newer := s.of(at)
	newer.settle = append(newer.settle, p.settle...)
	newer.release = append(newer.release, p.release...)
	newer.park = append(newer.park, p.park...)
	newer.advance = append(newer.advance, p.advance...)
	pause := p.retry.Next()
	newer.retry, newer.rest = p.retry, time.Now().Add(pause)
	time.AfterFunc(pause, s.kicked.Send) // when the rest is over
}

// drain waits until nothing is left to do. It returns ctx's error if ctx ends first.
func (s *settler) drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		left, idle := len(s.pending)+len(s.under), s.idle
		s.mu.Unlock()
		s.hurried.Send()
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
