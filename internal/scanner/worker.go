package scanner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/reshard"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// worker polls some shards in each tick: one, or several if the topic has more shards
// than its scanners have workers. Its calls to Redis run in goroutines of their own. So a
// cluster master that hangs doesn't delay the shards of the others.
type worker struct {
	topic *topic
	index int
	asks  int    // how many tasks to claim next; 0: not known
	name  string // the claimant, unique in the fleet
	retry retry.Backoff
	alarm *retry.Alarm

	calls   calls
	nodes   map[string]*node     // by name.
	busy    map[int]*polledShard // by shard: a look or a claim is under way.
	all     polledShards         // of this tick.
	empty   bool                 // nothing was claimed in this tick.
	drawing *call                // nil: no draw is under way.
	drawn   *drawn               // the result of the last draw, if it wasn't used so far.
	last    *drawn               // the last draw that was used.
	mute    bool                 // the worker gave up waiting for the last draw.
	drew    time.Duration        // how long the answer to the last draw took.

	moving  *reshard.Worker
	outages outages
}

func (t *topic) newWorker(number int) *worker {
	name := fmt.Sprintf("%s/%d", t.instance, number)
	return &worker{
		topic: t, index: number, name: name,
		calls: calls{news: retry.NewSignal()}, nodes: map[string]*node{}, busy: map[int]*polledShard{},
		moving:  reshard.NewWorker(name),
		outages: outages{silent: map[string]bool{}},
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

// run draws tickets every tick and polls their shards, until ctx ends or the topic needs
// fewer workers. Then it waits for its calls. Ticks keep one rhythm, so that the order of
// draws in the fleet stays the same. The first tick is shortened at random, so that
// workers that start together don't draw together.
func (w *worker) run(ctx context.Context) {
	w.alarm = retry.NewAlarm()
	defer w.alarm.Close()
	defer w.outages.endAll(w.topic)
	defer w.calls.running.Wait()
	end := time.Now().Add(rand.N(w.topic.settings().Tick + 1))
	for ctx.Err() == nil && w.index < w.topic.workers() {
		d, ok := w.draw(ctx)
		if !ok {
			continue
		}
		w.poll(ctx, d, end)
		end = nextEnd(end, time.Now(), w.topic.settings().Tick)
	}
}

// nextEnd returns when the tick that begins now ends. If the last tick was cut short, the
// next one takes its rest, which keeps the rhythm.
func nextEnd(end, now time.Time, tick time.Duration) time.Time {
	if !end.After(now) {
		end = end.Add(tick)
	}
	if left := end.Sub(now); left <= 0 || left > tick {
		return now.Add(tick)
	}
	return end
}

// drawn is the result of a worker's draw for a tick.
type drawn struct {
	shards    []int
	placement shard.Placement
	// The settings for which the worker drew; it draws again when they change.
	tick    time.Duration
	scanned int
}

// draw takes tickets and reads the placement. While Redis doesn't answer, the worker goes
// on to the next shards in each tick. All others do so too, and no shard is left alone.
// draw returns false if there are no shards to go on from.
func (w *worker) draw(ctx context.Context) (drawn, bool) {
	if w.drawn == nil { // no answer came during the last tick
		if w.drawing == nil {
			w.drawing = w.beginDraw(ctx)
		}
		w.awaitDraw(ctx)
	}
	if w.drawn != nil {
		w.last, w.drawn = w.drawn, nil
	} else if w.goesOn() {
		w.last = w.last.next()
	} else {
		w.retry.Wait(ctx)
		return drawn{}, false
	}
	return *w.last, true
}

// next returns the shards of the next tickets, as if they had been drawn.
func (d *drawn) next() *drawn {
	next := *d
	next.shards = make([]int, len(d.shards))
	for i, at := range d.shards {
		next.shards[i] = (at + len(d.shards)) % d.placement.Scanned()
	}
	return &next
}

// goesOn reports whether there are shards to go on with.
func (w *worker) goesOn() bool { return w.last != nil && w.holds(*w.last) }

// awaitDraw waits for the draw, and only briefly if there are shards to go on with.
func (w *worker) awaitDraw(ctx context.Context) {
	for ctx.Err() == nil && w.drawing != nil {
		limit := patience(w.drew)
		if w.mute {
			limit = 0
		}
		w.calls.await(ctx, limit, w.drawing)
		if w.drawing == nil {
			return
		}
		w.mute = true
		if w.goesOn() {
			return
		}
		select {
		case <-ctx.Done():
		case <-w.calls.news:
			w.calls.note(ctx)
		}
	}
}

func (w *worker) beginDraw(ctx context.Context) *call {
	t := w.topic
	d := drawn{tick: t.settings().Tick, scanned: t.scanned()}
	_, tickets := t.scale()
	var err error
	ask := func(*call) { d.shards, d.placement, err = balance.Draw(context.WithoutCancel(ctx), t.store, tickets) }
	return w.calls.begin(ask, func(ctx context.Context, one *call) {
		w.drawing, w.drew = nil, one.took
		if err != nil {
			w.outage(ctx, "", "draw", err)
			if shard.Definite(err) || errors.Is(err, task.ErrUnknownTopic) {
				w.last = nil
			}
			return
		}
		w.drawn, w.mute = &d, false
		w.retry.Reset()
		w.recovered(ctx, "")
		t.resharder.Learn(d.placement)
	})
}

// holds reports whether a draw still fits the settings in force. A worker above the
// number in the settings leaves at once. A worker that isn't needed because others joined
// stays to the end of the tick, because the others haven't drawn its shards so far.
func (w *worker) holds(d drawn) bool {
	s := w.topic.settings()
	return s.Tick == d.tick && w.topic.scanned() == d.scanned && (s.Workers == 0 || w.index < s.Workers)
}

// poll polls the worker's shards until the tick ends. It claims what is due and
// forwards it, from one shard after the other, again while there is more. Otherwise it
// waits for the next due time, a wake-up or the end. It moves misplaced tasks at the same
// time, and due tasks don't wait for that. It ends at once when the settings no longer
// fit the draw, and when a delayed draw is answered.
func (w *worker) poll(ctx context.Context, d drawn, end time.Time) {
	life := ctx
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel() // for the movers too
	waiter := w.topic.waiters.add(d.shards...)
	defer waiter.remove()
	w.calls.running.Go(func() { w.topic.resharder.Move(life, ctx, w.moving, d.shards, d.placement) })
	w.all, w.empty = w.polledShards(ctx, d.shards), true
	for ctx.Err() == nil && w.holds(d) && w.drawn == nil {
		changed := w.topic.changed.Next()
		w.look(ctx)
		rest := w.claimDue(ctx, w.all.due(time.Now()))
		w.wait(ctx, rest, waiter, changed)
	}
	w.topic.metrics.Tick(w.empty)
}

// wait returns at the next due time, though not before rest. It also returns when the
// settings change, when a draw is answered, and at the end of the tick. Meanwhile it
// notes other answers, and a wake-up for an earlier task brings the due time forward.
func (w *worker) wait(ctx context.Context, rest time.Time, waiter *waiter, changed <-chan struct{}) {
	for {
		next := time.Hour
		if first := w.all.first(); first != nil {
			next = max(time.Until(first.next), time.Until(rest))
		}
		w.alarm.Set(next)
		select {
		case <-ctx.Done():
			return
		case <-changed:
			return
		case <-w.alarm.Rings:
			return
		case <-w.calls.news:
			w.calls.note(ctx)
			if w.drawn != nil {
				return
			}
		case <-waiter.notified:
			for at, score := range waiter.take() {
				w.all.wake(at, score)
			}
		}
	}
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
	w.topic.health.outage.Store(&why)
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

// keep removes the outages of nodes that hold none of the worker's shards.
func (o *outages) keep(ctx context.Context, w *worker, nodes map[string]bool) {
	o.mu.Lock()
	var gone []string
	for name := range o.silent {
		if name != "" && !nodes[name] {
			gone = append(gone, name)
		}
	}
	o.mu.Unlock()
	for _, name := range gone {
		o.end(ctx, w, name)
	}
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
