package scanner

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
	"github.com/duefleet/duefleet/task"
)

// A worker waits for an answer from Redis before it goes on with its other shards. It
// waits twice as long as the last answer took, between leastPatience and mostPatience. So
// it waits for a Redis that is far away too.
const (
	leastPatience = 100 * time.Millisecond
	mostPatience  = 2 * time.Second
)

// patience returns how long to wait for an answer if the last one took this long.
func patience(took time.Duration) time.Duration {
	return min(max(2*took, leastPatience), mostPatience)
}

// call is one call to Redis. It runs in a goroutine of its own, not in the worker's.
type call struct {
	began   time.Time
	took    time.Duration // until the answer came; the worker reads it when the call is over.
	decided atomic.Bool   // the answer came in time, or the worker gave up waiting.
	left    bool          // the worker gave up waiting; only the worker reads it.
	over    bool          // the worker has noted the outcome; only the worker reads it.
}

// answered reports whether the worker still waits for the call. The call's goroutine
// calls it once, when the answer is there.
func (c *call) answered() bool { return c.decided.CompareAndSwap(false, true) }

// calls are a worker's calls to Redis. A call that hangs delays only its own shards: the
// worker waits for it briefly, and notes its outcome when it comes.
type calls struct {
	running sync.WaitGroup
	news    wake.Signal // there are outcomes to note

	mu       sync.Mutex
	outcomes []func(context.Context)
}

// begin runs ask in a new goroutine. Afterwards the worker runs note in its own
// goroutine.
func (c *calls) begin(ask func(*call), note func(context.Context, *call)) *call {
	one := &call{began: time.Now()}
	c.running.Go(func() {
		ask(one)
		one.took = time.Since(one.began)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.outcomes = append(c.outcomes, func(ctx context.Context) { one.over = true; note(ctx, one) })
		c.news.Send()
	})
	return one
}

// applyOutcomes notes the outcomes that have come.
func (c *calls) applyOutcomes(ctx context.Context) {
	c.mu.Lock()
	outcomes := c.outcomes
	c.outcomes = nil
	c.mu.Unlock()
	for _, note := range outcomes {
		note(ctx)
	}
}

// await waits until the outcomes of some calls are noted. It gives up on calls that have
// no answer after patience.
func (c *calls) await(ctx context.Context, patience time.Duration, some ...*call) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		c.applyOutcomes(ctx)
		if !underWay(some) {
			return
		}
		select {
		case <-c.news:
		case <-timer.C:
			leave(some)
		}
	}
}

func underWay(some []*call) bool {
	for _, one := range some {
		if !one.over && !one.left {
			return true
		}
	}
	return false
}

// leave gives up waiting for the calls that have no answer.
func leave(some []*call) {
	for _, one := range some {
		if !one.over && one.decided.CompareAndSwap(false, true) {
			one.left = true
		}
	}
}

// node holds what a worker knows about one master of a Redis Cluster, or about the one
// Redis.
type node struct {
	name   string
	silent bool          // the worker gave up on a call, and no answer has come since.
	left   int           // claims under way that the worker gave up on.
	took   time.Duration // how long its last answer took.
}

// mostLeft limits the claims under way at a node that a worker has given up on. At the
// limit it claims no more there until one of them is over.
const mostLeft = 2

// nodeOf returns the node that holds a shard now.
func (w *worker) nodeOf(ctx context.Context, at int) *node {
	name := w.topic.store.Shard(at).Node(ctx)
	if w.nodes[name] == nil {
		w.nodes[name] = &node{name: name}
	}
	return w.nodes[name]
}

// outage notes an error from Redis that belongs to a node and not to one shard. node is
// "" for a call that belongs to no shard.
func (w *worker) outage(ctx context.Context, node, operation string, err error) {
	if ctx.Err() != nil {
		return
	}
	w.topic.health.errors(operation)
	if errors.Is(err, task.ErrUnknownTopic) {
		w.topic.resharder.Learn(shard.Placement{})
	} else {
		w.outages.begin(ctx, w, node, operation, err)
	}
}

// recovered notes that a node serves this worker.
func (w *worker) recovered(ctx context.Context, node string) { w.outages.end(ctx, w, node) }

// outage is why Redis doesn't serve a worker.
type outage struct {
	kind problem.Kind
	why  string
}

// outages are the nodes that don't serve a worker.
type outages struct {
	mu     sync.Mutex
	silent map[string]bool
}

// begin records why a node doesn't serve the worker, and logs it once for each outage.
func (o *outages) begin(ctx context.Context, w *worker, node, operation string, err error) {
	why := redisText(err)
	o.mu.Lock()
	defer o.mu.Unlock()
	w.topic.health.outage.Store(&outage{kindOfRedis(err), why})
	if !o.silent[node] {
		o.silent[node] = true
		w.topic.log.WarnContext(ctx, "redis does not serve this worker", "worker", w.name, "operation", operation, "error",
			why)
	}
}

// end removes an outage that the worker noted. If another worker waits for Redis, it
// notes its outage again.
func (o *outages) end(ctx context.Context, w *worker, node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.silent[node] {
		return
	}
	delete(o.silent, node)
	if len(o.silent) == 0 {
		w.topic.health.outage.Store(nil)
	}
	w.topic.log.InfoContext(ctx, "redis serves this worker again", "worker", w.name)
}

// endAll removes all outages that the worker noted.
func (o *outages) endAll(t *topic) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.silent) > 0 {
		clear(o.silent)
		t.health.outage.Store(nil)
	}
}
