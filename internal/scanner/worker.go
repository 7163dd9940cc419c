package scanner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/duefleet/duefleet/internal/reshard"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/wake"
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
	alarm *wake.Alarm

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
		calls: calls{news: wake.NewSignal()}, nodes: map[string]*node{}, busy: map[int]*polledShard{},
		moving:  reshard.NewWorker(name),
		outages: outages{silent: map[string]bool{}},
	}
}

// run draws tickets every tick and polls their shards, until ctx ends or the topic needs
// fewer workers. Then it waits for its calls. Ticks keep one rhythm, so that the order of
// draws in the fleet stays the same. The first tick is shortened at random, so that
// workers that start together don't draw together.
func (w *worker) run(ctx context.Context) {
	w.alarm = wake.NewAlarm()
	defer w.alarm.Close()
	defer w.outages.endAll(w.topic)
	defer w.calls.running.Wait()
	end := time.Now().Add(rand.N(w.topic.inForce.settings().Tick + 1))
	for ctx.Err() == nil && w.index < w.topic.workers() {
		d, ok := w.draw(ctx)
		if !ok {
			continue
		}
		w.poll(ctx, d, end)
		end = nextEnd(end, time.Now(), w.topic.inForce.settings().Tick)
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
		changed := w.topic.inForce.changed.Next()
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
			w.calls.applyOutcomes(ctx)
			if w.drawn != nil {
				return
			}
		case <-waiter.notified:
			for at, score := range waiter.takeScores() {
				w.all.wake(at, score)
			}
		}
	}
}

// keepNodes removes the outages of nodes that hold none of the worker's shards.
func (o *outages) keepNodes(ctx context.Context, w *worker, nodes map[string]bool) {
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
