package scanner

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
)

// topic is what this scanner does for one topic: its workers, its publisher, and
// what they share.
type topic struct {
	name      string
	instance  string
	store     *shard.Topic
	source    config.Source
	shared    bool // the source is the same for all scanners: Consul
	publisher *forward.Publisher
	window    *window
	settler   *settler
	bells     *bells
	log       *slog.Logger
	all       *telemetry.Metrics
	metrics   *telemetry.TopicMetrics
	live      func() int     // scanners of the fleet that live
	requests  *atomic.Uint64 // the process's
	notices   notices
	sampled   limiter
	swept     limiter       // under the placement known
	placed    chan struct{} // a placement was put in force

	now     atomic.Pointer[config.Topic]
	stopped atomic.Bool            // no more claims
	wishes  atomic.Uint64          // how often a document brought another shard count
	refused atomic.Pointer[string] // why Redis does not serve a worker; nil: it does

	troubles troubles // of single shards
	denied   denials  // of all beside claims and moves

	heeded uint64 // wishes that the placement agreed with; the steward's own

	mu        sync.Mutex
	placement shard.Placement
	clean     map[int]bool            // shards known to be clean under placement
	fences    map[int]shard.Placement // by shard: what it was last fenced with
	claimed   map[int]bool            // by shard: the last claim was carried out
	changed   retry.Broadcast         // of settings and placement
	removed   bool                    // the topic was removed from Redis
	document  []byte                  // in force; nil: not known yet
}

func (t *topic) settings() *config.Topic { return t.now.Load() }

// apply puts new settings in force; they have passed every check.
func (t *topic) apply(s config.Topic) {
	before := t.now.Swap(&s)
	t.window.resize(s.Window)
	if before == nil || before.Shards != s.Shards {
		t.wishes.Add(1)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change()
}

func (t *topic) change() { t.changed.Fire() }

func (t *topic) changes() <-chan struct{} { return t.changed.Next() }

// awaitChange waits for new settings, a new placement, or ctx.
func (t *topic) awaitChange(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-t.changes():
	}
}

func route(s config.Topic) forward.Route {
	r := forward.Route{Exchange: s.Exchange, RoutingKey: s.RoutingKey, Window: s.Window, ConfirmTimeout: s.Lease / 2}
	if s.Declare != nil {
		r.Declare = &forward.Declare{Type: s.Declare.Type, Queue: s.Declare.Queue, QueueType: s.Declare.QueueType}
	}
	return r
}

// direct gives the publisher the route of the settings in force. It may have to
// wait for the broker, which nothing else of the topic shall.
func (t *topic) direct(ctx context.Context) error {
	var last forward.Route
	for ctx.Err() == nil {
		changed := t.changes()
		if next := route(*t.settings()); !reflect.DeepEqual(next, last) {
			t.publisher.SetRoute(next)
			last = next
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return nil
}

// learn notes a placement that was read from Redis. An older one than is known was
// read before that one, most likely; the steward finds out.
func (t *topic) learn(p shard.Placement) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Epoch > t.placement.Epoch {
		t.take(p)
	}
}

// relearn notes a placement that was read when known was known already. So an older
// one is what Redis fell back to, as one that was restored from a backup does, and
// with it what its shards have seen.
func (t *topic) relearn(known, p shard.Placement) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p.Epoch > t.placement.Epoch:
		t.take(p)
	case t.placement != known:
	case p == known:
		t.removed = false
	default:
		t.log.WarnContext(context.Background(), "placement is not the one that was known", "known", known.String(), "placement", p.String())
		t.fences = map[int]shard.Placement{}
		t.take(p)
	}
}

// take puts a placement in the place of the one known; t.mu is held.
func (t *topic) take(p shard.Placement) {
	t.placement, t.clean, t.removed = p, map[int]bool{}, false
	t.swept.reset()
	t.metrics.SetPlacement(p.Shards, p.Epoch, p.Phase == shard.Migrating)
	if p.Phase == shard.Stable {
		t.metrics.SetProgress(0, 0, 0)
		t.metrics.SetStrays(0)
	}
	t.change()
}

func (t *topic) learnRemoved() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removed = true
}

func (t *topic) known() (p shard.Placement, removed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.placement, t.removed
}

// scanned is how many shards are attended; at least 1.
func (t *topic) scanned() int {
	p, _ := t.known()
	return max(p.Scanned(), 1)
}

// waitScanned waits until another number of shards than n is attended.
func (t *topic) waitScanned(ctx context.Context, n int) {
	for t.scanned() == n && ctx.Err() == nil {
		changed := t.changes()
		if t.scanned() != n {
			return
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// fenced is the placement that a shard was last shown.
func (t *topic) fenced(at int) shard.Placement {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fences[at]
}

func (t *topic) fence(at int, p shard.Placement) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fences[at] = p
}

// scale returns how many workers this scanner runs for the topic, and how many tickets
// each of them draws a tick; none before there is a placement.
func (t *topic) scale() (workers, tickets int) {
	p, _ := t.known()
	if p.Epoch == 0 {
		return 0, 0
	}
	return balance.Scale(t.settings().Workers, t.scanned(), t.live())
}

// wanted returns how many workers this scanner runs for the topic.
func (t *topic) wanted() int {
	workers, _ := t.scale()
	return workers
}

// proven reports whether the last claim from a shard was carried out.
func (t *topic) proven(at int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.claimed[at]
}

func (t *topic) prove(at int, claimed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.claimed[at] = claimed
}

func (t *topic) closing() bool { return t.stopped.Load() }

// run serves the topic until ctx ends; then it stops claiming and waits for its
// workers. What is in flight goes on until drain.
func (t *topic) run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return t.steward(ctx) })
	group.Go(func() error { return t.listen(ctx) })
	group.Go(func() error { return t.direct(ctx) })
	group.Go(func() error { return t.keep(ctx) })
	pool := balance.Pool{Wanted: t.wanted, Changed: t.changes, Work: t.work}
	group.Go(func() error { pool.Run(ctx); return nil })
	return group.Wait()
}

// work runs one worker until ctx ends or it is not wanted any more.
func (t *topic) work(ctx context.Context, number int) {
	t.metrics.AddWorkers(1)
	defer t.metrics.AddWorkers(-1)
	t.worker(number).run(ctx)
}

func (t *topic) worker(i int) *worker {
	return &worker{topic: t, index: i, name: fmt.Sprintf("%s/%d", t.instance, i)}
}

// request is a number that this process gives to no other claim or export: a worker
// that is started again has the name of the one before, whose batches may be in flight.
func (t *topic) request() string { return strconv.FormatUint(t.requests.Add(1), 10) }

// drain lets what is in flight end, and gives back what has not by the end of
// ctx; for the latter it takes up to rest more. Nothing is claimed any more.
func (t *topic) drain(ctx context.Context, rest time.Duration) error {
	if err := t.publisher.Drain(ctx); err != nil {
		t.log.WarnContext(ctx, "messages not confirmed in time, given back", "error", err)
	}
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), end.Add(rest))
		defer cancel()
	}
	if err := t.settler.drain(ctx); err != nil {
		return fmt.Errorf("settle topic %s: %w: its tasks in flight are delivered again when their leases end", t.name, err)
	}
	return nil
}

// drainRest is what is kept of the time to shut down, at most a quarter each, to
// tell Redis what became of the last tasks, and to take leave.
const drainRest = 2 * time.Second

func jitter(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(d) + 1)) }

// limiter lets something through once in a while.
type limiter struct{ last atomic.Int64 }

func (l *limiter) allow(every time.Duration) bool {
	now, last := time.Now().UnixMilli(), l.last.Load()
	return now-last >= every.Milliseconds() && l.last.CompareAndSwap(last, now)
}

// reset lets the next one through at once.
func (l *limiter) reset() { l.last.Store(0) }
