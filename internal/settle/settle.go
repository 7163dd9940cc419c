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
	// Convoy sends the settlements of all topics.
	Convoy *shard.Convoy
	// Tasks stores the runs that are parked.
	Tasks *router.Router
	// Window has the places of the tasks. A task frees its place when its outcome is in Redis.
	Window *window.Window
	// Tried takes the outcome of each attempt.
	Tried   func(operation string, err error)
	Metrics *Metrics
}

// Settler removes confirmed tasks from Redis and releases the others, in batches. A batch gathers until
// the end of the convoy's slot, so the batches of many topics share a pipeline. If it takes an eighth
// of the window, it goes at once. A node that hangs delays the tasks of no other. Outcomes that can't
// be written to Redis now are retried until they are. Meanwhile their tasks stay in the window, which
// stops claims and so bounds the memory. It is safe for concurrent use.
type Settler struct {
	cfg Config

	mu      sync.Mutex
	pending map[int]*settlement // by shard
	tasks   int                 // tasks that became pending since the last round began.
	hurried bool                // nothing gathers any longer.
	rounds  map[string]bool     // nodes whose next round is to come
	under   map[int]bool        // shards whose settlement is under way
	idle    chan struct{}
	ctx     context.Context // of Start; nil before it
	working sync.WaitGroup  // the settlements under way
}

// settlement holds what is to be done in one shard.
type settlement struct {
	shard.Settlement
	park  []ParkedRun
	node  string // whose round it waits for, if any
	waits bool   // for that round
	retry retry.Backoff
	rest  time.Time // not before it: the last attempt failed
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
		cfg: cfg, pending: map[int]*settlement{}, rounds: map[string]bool{}, under: map[int]bool{},
		idle: make(chan struct{}),
	}
}

// Settle makes the removal of a task pending.
func (s *Settler) Settle(at int, l shard.Lease) {
	s.add(at, func(p *settlement) { p.Settle = append(p.Settle, l) })
}

// Release makes the release of a task pending.
func (s *Settler) Release(at int, r shard.Release) {
	s.cfg.Metrics.Released.Inc()
	s.add(at, func(p *settlement) { p.Release = append(p.Release, r) })
}

// Advance makes the settlement of a recurring task's run pending.
func (s *Settler) Advance(at int, a shard.Advance) {
	s.add(at, func(p *settlement) { p.Advance = append(p.Advance, a) })
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
	s.begin(at)
}

// of returns what is pending for a shard; s.mu is held.
func (s *Settler) of(at int) *settlement {
	if s.pending[at] == nil {
		s.pending[at] = &settlement{}
	}
	return s.pending[at]
}

// Start settles what is pending, and what becomes pending until ctx ends. It doesn't wait for that.
func (s *Settler) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx, s.hurried = ctx, false
	for at := range s.pending {
		s.begin(at)
	}
}

// Wait begins no more settlements, and waits until those under way have ended. Call it once the
// context of Start has ended.
func (s *Settler) Wait() {
	s.mu.Lock()
	s.ctx = nil
	s.mu.Unlock()
	s.working.Wait()
}

func (s *Settler) running() bool { return s.ctx != nil && s.ctx.Err() == nil }

// begin lets what is pending for a shard wait for the next round of its node. That is at once if a part
// of the window is to be settled, and else at the end of the slot. Until then a delivered task does no
// harm in Redis. If the scanner is killed meanwhile, the task is delivered again. s.mu is held.
func (s *Settler) begin(at int) {
	p := s.pending[at]
	if p == nil || !s.running() || s.under[at] || time.Now().Before(p.rest) {
		return
	}
	if !p.waits {
		p.waits, p.node = true, s.cfg.Topic.Shard(at).Node(s.ctx)
	}
	if node := p.node; !s.rounds[node] {
		s.rounds[node] = true
		s.cfg.Convoy.Gather(node, func() { s.round(node) })
	}
	if s.hurried || s.tasks >= max(1, s.cfg.Window.Size()/8) {
		s.cfg.Convoy.Hurry(p.node)
	}
}

// round starts what waits for it. A shard has at most one settlement under way. Tasks that become
// pending meanwhile gather.
func (s *Settler) round(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = 0
	delete(s.rounds, node)
	for at, p := range s.pending {
		if !p.waits || p.node != node {
			continue
		}
		if p.waits = false; s.running() {
			s.under[at] = true
			delete(s.pending, at)
			s.working.Add(1)
			s.carryOut(at, p)
		}
	}
}

// carryOut does what is to be done in one shard. It waits for nothing; s.mu is held.
func (s *Settler) carryOut(at int, p *settlement) {
	settle := func() {
		s.cfg.Convoy.Settle(s.cfg.Topic.Shard(at), p.node, p.Settlement, func(all shard.Settled) { s.settled(at, p, all) })
	}
	if len(p.park) == 0 {
		settle()
		return
	}
	ctx := s.ctx
	go func() {
		s.park(ctx, p)
		settle()
	}()
}

// park stores parked runs as tasks. Then their recurring tasks go on.
func (s *Settler) park(ctx context.Context, p *settlement) {
	for len(p.park) > 0 {
		_, err := s.cfg.Tasks.Requeue(ctx, p.park[0].Requeue)
		if s.cfg.Tried("release", err); err != nil {
			return
		}
		p.Advance, p.park = append(p.Advance, p.park[0].Advance), p.park[1:]
	}
}

// settled takes the outcome of a settlement. It frees the places of the tasks that Redis acknowledged.
func (s *Settler) settled(at int, p *settlement, all shard.Settled) {
	freed, left := 0, settlement{park: p.park}
	written := func(operation string, n int, err error) bool {
		if n == 0 {
			return true
		}
		if s.cfg.Tried(operation, err); err == nil {
			freed += n
		}
		return err == nil
	}
	if !written("settle", len(p.Settle), all.Settle) {
		left.Settle = p.Settle
	}
	if !written("release", len(p.Release), all.Release) {
		left.Release = p.Release
	}
	if !written("settle", len(p.Advance), all.Advance) {
		left.Advance = p.Advance
	}
	if freed > 0 {
		s.cfg.Window.Free(freed, 0, 0)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.working.Done()
	delete(s.under, at)
	if len(left.Settle)+len(left.Release)+len(left.Advance)+len(left.park) > 0 {
		left.retry = p.retry
		s.again(at, left)
	}
	if s.begin(at); len(s.pending)+len(s.under) == 0 {
		close(s.idle)
		s.idle = make(chan struct{})
	}
}

// again makes pending what Redis didn't acknowledge. It rests for a while, and other shards are settled
// meanwhile. A part that Redis did carry out is carried out twice, which changes nothing. s.mu is held.
func (s *Settler) again(at int, left settlement) {
	p := s.of(at)
	p.Settle = append(p.Settle, left.Settle...)
	p.Release = append(p.Release, left.Release...)
	p.Advance = append(p.Advance, left.Advance...)
	p.park = append(p.park, left.park...)
	pause := left.retry.Next()
	p.retry, p.rest = left.retry, time.Now().Add(pause)
	time.AfterFunc(pause, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.begin(at)
	})
}

// Drain waits until nothing is left to do. It returns ctx's error if ctx ends first.
func (s *Settler) Drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		left, idle := len(s.pending)+len(s.under), s.idle
		s.hurried = true
		for at := range s.pending {
			s.begin(at)
		}
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
