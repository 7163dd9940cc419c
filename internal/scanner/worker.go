package scanner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// worker attends some shards a tick: one, or as many as it takes where a topic has
// more than its scanners have workers for. It asks Redis beside its own goroutine, so that
// a master of a cluster that hangs holds up none of the others' shards.
type worker struct {
	topic *topic
	index int
	asks  int    // how many tasks to claim next; 0: nothing is known yet
	name  string // the claimant, unique in the fleet
	retry retry.Backoff
	alarm *alarm

	calls   calls
	nodes   map[string]*node  // by name
	busy    map[int]*attended // by shard: a look or a claim is under way
	all     attendance        // of this tick
	waiter  *waiter           // for its shards
	empty   bool              // nothing was claimed in this tick
	drawing *call             // nil: no draw is under way
	drawn   *drawn            // what came of the last draw, if it was not used yet
	last    *drawn            // what was used last
	mute    bool              // the worker left the last draw without an answer

	moving  chan struct{} // held by the one goroutine that moves
	turn    time.Time     // no step of moving before it; of who moves
	outages outages
}

func (t *topic) newWorker(number int) *worker {
	return &worker{
		topic: t, index: number, name: fmt.Sprintf("%s/%d", t.instance, number),
		calls: calls{news: make(chan struct{}, 1)}, nodes: map[string]*node{}, busy: map[int]*attended{}, moving: make(chan struct{}, 1),
		outages: outages{silent: map[string]bool{}},
	}
}

// node is what a worker knows of one master of a Redis Cluster, or of the one Redis.
type node struct {
	name   string
	silent bool // the worker left a call without an answer, and none has come since
	left   int  // claims under way that the worker left
}

// mostLeft is how many claims of a node a worker leaves without an answer before it claims
// no more from there until one of them is over.
const mostLeft = 2

// nodeOf returns the node that holds a shard now.
func (w *worker) nodeOf(ctx context.Context, at int) *node {
	name := w.topic.store.Shard(at).Node(ctx)
	if w.nodes[name] == nil {
		w.nodes[name] = &node{name: name}
	}
	return w.nodes[name]
}

// run draws tickets every tick and attends the shards they stand for, until ctx ends or
// the topic needs fewer workers; then it waits for its calls. Ticks keep to one rhythm, so
// that the order of draws in the fleet stays as it is. The first is cut short at random,
// so that workers that start together don't draw together.
func (w *worker) run(ctx context.Context) {
	w.alarm = newAlarm()
	defer w.alarm.close()
	defer w.outages.endAll(w.topic)
	defer w.calls.running.Wait()
	defer w.leave()
	end := time.Now().Add(rand.N(w.topic.settings().Tick + 1))
	for ctx.Err() == nil && w.index < w.topic.workers() {
		d, ok := w.draw(ctx)
		if !ok {
			continue
		}
		w.attend(ctx, d, end)
		end = nextEnd(end, time.Now(), w.topic.settings().Tick)
	}
}

// nextEnd is when the tick ends that begins now. One that was cut short leaves its rest
// to the next, which keeps the rhythm.
func nextEnd(end, now time.Time, tick time.Duration) time.Time {
	if !end.After(now) {
		end = end.Add(tick)
	}
	if left := end.Sub(now); left <= 0 || left > tick {
		return now.Add(tick)
	}
	return end
}

// drawn is what a worker drew for a tick.
type drawn struct {
	shards    []int
	placement shard.Placement
	// What the draw went by; when it is another one, the worker draws anew.
	tick    time.Duration
	scanned int
}

// draw takes tickets and reads the placement. While Redis doesn't answer, the worker
// goes on to the next shards in each tick, as all others do: none stays alone. It returns
// false if it had none before.
func (w *worker) draw(ctx context.Context) (drawn, bool) {
	if w.drawing == nil {
		w.drawing = w.beginDraw(ctx)
	}
	w.awaitDraw(ctx)
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

// next is as if the tickets behind these had been drawn.
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

// awaitDraw waits for the draw: briefly if there are shards to go on with.
func (w *worker) awaitDraw(ctx context.Context) {
	for ctx.Err() == nil && w.drawing != nil {
		limit := patience
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
	d := drawn{tick: t.settings().Tick, scanned: t.view.scanned()}
	_, tickets := t.scale()
	var err error
	ask := func(*call) { d.shards, d.placement, err = balance.Draw(context.WithoutCancel(ctx), t.store, tickets) }
	return w.calls.begin(ask, func(ctx context.Context, _ *call) {
		w.drawing = nil
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
		t.view.learn(d.placement)
	})
}

// holds reports whether a draw still goes by what is in force. A worker that the settings
// don't want any more leaves at once; one that is not needed any more because others
// joined stays to the end of the tick, since they have yet to draw its shards.
func (w *worker) holds(d drawn) bool {
	s := w.topic.settings()
	return s.Tick == d.tick && w.topic.view.scanned() == d.scanned && (s.Workers == 0 || w.index < s.Workers)
}

// attend stays with its shards until the tick ends: claims what is due and forwards
// it, from one shard after the other, and again while there is more; else waits for
// the next due time of any, a wake-up or the end. Beside that it moves what is
// misplaced: a task that comes due doesn't wait for it. Settings that end the tick
// sooner end it at once, and so does a draw that was waited for.
func (w *worker) attend(ctx context.Context, d drawn, end time.Time) {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel() // for the movers too
	w.listen(d.shards)
	w.calls.running.Go(func() { w.moveAlone(ctx, d) })
	w.all, w.empty = w.attendance(ctx, d.shards), true
	for ctx.Err() == nil && w.holds(d) && w.drawn == nil {
		changed := w.topic.changed.Next()
		w.look(ctx)
		rest := w.claimDue(ctx, w.all.due(time.Now()))
		w.wait(ctx, rest, changed)
	}
	w.topic.metrics.Tick(w.empty)
}

// moveAlone moves what is misplaced until the tick ends, once a step of the tick before
// that hangs is over.
func (w *worker) moveAlone(ctx context.Context, d drawn) {
	select {
	case <-ctx.Done():
	case w.moving <- struct{}{}:
		defer func() { <-w.moving }()
		w.move(ctx, d.shards, d.placement)
	}
}

// wait returns at the next due time, though not before the end of a rest, after an
// answer of Redis's or a change of the settings, and at the end of the tick. A waiter that
// is notified of an earlier task brings the due time forward.
func (w *worker) wait(ctx context.Context, rest time.Time, changed <-chan struct{}) {
	for {
		next := time.Hour
		if first := w.all.first(); first != nil {
			next = max(time.Until(first.next), time.Until(rest))
		}
		w.alarm.set(next)
		select {
		case <-ctx.Done():
			return
		case <-changed:
			return
		case <-w.alarm.rings:
			return
		case <-w.calls.news:
			w.calls.note(ctx)
			if w.drawn != nil {
				return
			}
		case <-w.waiter.notified:
			for at, score := range w.waiter.take() {
				w.all.wake(at, score)
			}
		}
	}
}

// outage notes an error of Redis's that is not one shard's, but its node's; of what is no
// shard's the node is "".
func (w *worker) outage(ctx context.Context, node, operation string, err error) {
	if ctx.Err() != nil {
		return
	}
	w.topic.health.errors(operation)
	if errors.Is(err, task.ErrUnknownTopic) {
		w.topic.view.learnRemoved()
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

// begin keeps why a node does not serve the worker, and logs it once for each outage.
func (o *outages) begin(ctx context.Context, w *worker, node, operation string, err error) {
	why := redisText(err)
	o.mu.Lock()
	defer o.mu.Unlock()
	w.topic.health.outage.Store(&why)
	if !o.silent[node] {
		o.silent[node] = true
		w.topic.log.WarnContext(ctx, "redis does not serve this worker", "worker", w.name, "operation", operation, "error", why)
	}
}

// end forgets a node's outage that the worker noted; another worker that waits for Redis
// notes it again.
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

// keep forgets the outages of nodes that don't hold any of the worker's shards.
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

// endAll forgets all outages that the worker noted.
func (o *outages) endAll(t *topic) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.silent) > 0 {
		clear(o.silent)
		t.health.outage.Store(nil)
	}
}
