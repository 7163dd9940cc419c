// Package settle writes the outcomes of a topic's tasks to Redis, in batches: it removes
// confirmed tasks and gives the others back.
package settle

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/window"
)

// Metrics count the outcomes of one topic; telemetry.Set says what the tags mean.
type Metrics struct {
	Released prometheus.Counter `metric:"released_total" help:"Tasks whose claim was given back."`
}

// Config of a topic's Settler. All fields are required.
type Config struct {
	Topic *shard.Topic
	// Tasks stores the runs that are parked.
	Tasks *router.Router
	// Window has the places of the tasks. A task frees its place when its outcome is in Redis.
	Window *window.Window
	// Tried takes the outcome of each attempt.
	Tried   func(operation string, err error)
	Metrics *Metrics
}

// Settler removes confirmed tasks from Redis and releases the others, in batches. A batch
// gathers for interval, or until it takes an eighth of the window. Each shard is settled
// separately, so one whose Redis hangs delays no other. Outcomes that can't be written to
// Redis now are retried until they are. Meanwhile their tasks stay in the window, which
// stops claims and so bounds the memory. It is safe for concurrent use.
type Settler struct {
	cfg Config

	mu      sync.Mutex
	pending map[int]*settlement // by shard
	tasks   int                 // tasks that became pending since the last round began.
	hurried bool                // nothing gathers any longer.
	next    *time.Timer         // of the next round; nil: none is to come.
	soon    bool                // it comes at once.
	began   time.Time           // the last round.
	under   map[int]bool        // shards whose settlement waits in a queue or is under way
	queues  map[string]*queue
	idle    chan struct{}
	ctx     context.Context // of Start; nil before it
	working sync.WaitGroup  // the goroutines that settle, and the next round
}

// queue holds what is to be done in the shards of one node, so that a node that hangs
// delays no other.
type queue struct {
	node    string
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
	park    []ParkedRun
	advance []shard.Advance
	retry   retry.Backoff
	rest    time.Time // not before it: the last attempt failed
}

// ParkedRun is a run of a recurring task that the broker didn't accept. It is stored as a
// parked task of its own, before the recurring task goes on.
type ParkedRun struct {
	Requeue shard.Requeue
	Advance shard.Advance
}

// New returns a topic's Settler and starts nothing.
func New(cfg Config) *Settler {
	return &Settler{
		cfg: cfg, pending: map[int]*settlement{}, under: map[int]bool{}, queues: map[string]*queue{},
		idle: make(chan struct{}),
	}
}

// Settle makes the removal of a task pending.
func (s *Settler) Settle(at int, l shard.Lease) {
	s.add(at, func(p *settlement) { p.settle = append(p.settle, l) })
}

// Release makes the release of a task pending.
func (s *Settler) Release(at int, r shard.Release) {
	s.cfg.Metrics.Released.Inc()
	s.add(at, func(p *settlement) { p.release = append(p.release, r) })
}

// Advance makes the settlement of a recurring task's run pending.
func (s *Settler) Advance(at int, a shard.Advance) {
	s.add(at, func(p *settlement) { p.advance = append(p.advance, a) })
}

// ParkRun makes the parking of a recurring task's run pending.
func (s *Settler) ParkRun(at int, run ParkedRun) {
	s.cfg.Metrics.Released.Inc()
	s.add(at, func(p *settlement) { p.park = append(p.park, run) })
}

// add adds a task to what is pending for a shard.
func (s *Settler) add(at int, to func(*settlement)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to(s.of(at))
	s.tasks++
	s.begin()
}

// of returns what is pending for a shard; s.mu is held.
func (s *Settler) of(at int) *settlement {
	if s.pending[at] == nil {
		s.pending[at] = &settlement{}
	}
	return s.pending[at]
}

// workers is how many shards of one node are settled at the same time.
const workers = 4

// interval is the time between two rounds that have little to do. Until then a
// delivered task does no harm in Redis. If the scanner is killed meanwhile, the task is
// delivered again.
const interval = 20 * time.Millisecond

// Start settles what is pending, and what becomes pending until ctx ends. It doesn't wait for that.
func (s *Settler) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx, s.hurried = ctx, false
	s.begin()
}

// Wait begins no more settlements, and waits until those under way have ended. Call it once the
// context of Start has ended.
func (s *Settler) Wait() {
	s.mu.Lock()
	s.ctx = nil
	if s.next != nil && s.next.Stop() {
		s.next = nil
		s.working.Done()
	}
	s.mu.Unlock()
	s.working.Wait()
}

// begin sets the time of the next round, if anything is pending. That is at once if a part of the
// window is to be settled, and else at the end of the last round's interval. s.mu is held.
func (s *Settler) begin() {
	if len(s.pending) == 0 || s.ctx == nil || s.ctx.Err() != nil {
		return
	}
	pause := max(0, time.Until(s.began.Add(interval)))
	if s.hurried || s.tasks >= max(1, s.cfg.Window.Size()/8) {
		pause = 0
	}
	switch {
	case s.next == nil:
		s.working.Add(1)
		ctx := s.ctx
		s.soon, s.next = pause == 0, time.AfterFunc(pause, func() {
			defer s.working.Done()
			s.round(ctx)
		})
	case pause == 0 && !s.soon && s.next.Stop():
		s.soon = true
		s.next.Reset(0)
	}
}

// round starts everything that is pending and doesn't rest. A shard has at most one settlement under
// way. Tasks that become pending meanwhile gather. The goroutine of the round is one of those that
// settle, so a task of a topic that has little to do needs no other.
func (s *Settler) round(ctx context.Context) {
	var own *queue
	for _, j := range s.takeJobs() {
		node := s.cfg.Topic.Shard(j.shard).Node(ctx)
		s.mu.Lock()
		if s.queues[node] == nil {
			s.queues[node] = &queue{node: node}
		}
		q := s.queues[node]
		q.waiting = append(q.waiting, j)
		switch {
		case q.working == workers:
		case own == nil:
			own = q
			q.working++
		default:
			q.working++
			s.working.Go(func() { s.workOff(ctx, q) })
		}
		s.mu.Unlock()
	}
	if own != nil {
		s.workOff(ctx, own)
	}
}

// takeJobs returns the settlements that don't rest and whose shards have none under way. They
// are no longer pending.
func (s *Settler) takeJobs() (all []job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.tasks, s.began, s.next = 0, now, nil
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
func (s *Settler) workOff(ctx context.Context, q *queue) {
	for {
		s.mu.Lock()
		if len(q.waiting) == 0 {
			if q.working--; q.working == 0 {
				delete(s.queues, q.node)
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
func (s *Settler) ended(at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.under, at)
	if s.pending[at] != nil {
		s.begin()
	}
	if len(s.pending)+len(s.under) == 0 {
		close(s.idle)
		s.idle = make(chan struct{})
	}
}

// carryOut does what is to be done in one shard. If an attempt fails, the rest becomes
// pending again.
func (s *Settler) carryOut(ctx context.Context, at int, p *settlement) {
	to := s.cfg.Topic.Shard(at)
	if n := len(p.settle); n > 0 {
		_, err := to.Settle(ctx, p.settle)
		if !s.written(at, p, "settle", n, err) {
			return
		}
		p.settle = nil
	}
	if n := len(p.release); n > 0 {
		_, err := to.Release(ctx, p.release)
		if !s.written(at, p, "release", n, err) {
			return
		}
		p.release = nil
	}
	for len(p.park) > 0 {
		_, err := s.cfg.Tasks.Requeue(ctx, p.park[0].Requeue)
		if !s.written(at, p, "release", 0, err) {
			return
		}
		p.advance, p.park = append(p.advance, p.park[0].Advance), p.park[1:]
	}
	if n := len(p.advance); n > 0 {
		_, err := to.Advance(ctx, p.advance)
		s.written(at, p, "settle", n, err)
	}
}

// written reports whether an attempt succeeded. If so, it frees the places of n tasks.
// Otherwise the settlement becomes pending again.
func (s *Settler) written(at int, p *settlement, operation string, n int, err error) bool {
	if s.cfg.Tried(operation, err); err != nil {
		s.again(at, p)
		return false
	}
	if n > 0 {
		s.cfg.Window.Free(n, 0, 0)
	}
	return true
}

// again makes a settlement pending that Redis didn't acknowledge. It rests for a while,
// and other shards are settled meanwhile. A part that Redis did carry out is carried out
// twice, which changes nothing.
func (s *Settler) again(at int, p *settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newer := s.of(at)
	newer.settle = append(newer.settle, p.settle...)
	newer.release = append(newer.release, p.release...)
	newer.park = append(newer.park, p.park...)
	newer.advance = append(newer.advance, p.advance...)
	pause := p.retry.Next()
	newer.retry, newer.rest = p.retry, time.Now().Add(pause)
	time.AfterFunc(pause, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.begin()
	})
}

// Drain waits until nothing is left to do. It returns ctx's error if ctx ends first.
func (s *Settler) Drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		left, idle := len(s.pending)+len(s.under), s.idle
		s.hurried = true
		s.begin()
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
