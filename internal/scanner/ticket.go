package scanner

import (
	"context"
	"errors"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

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
			w.calls.applyOutcomes(ctx)
		}
	}
}

func (w *worker) beginDraw(ctx context.Context) *call {
	t := w.topic
	d := drawn{tick: t.inForce.settings().Tick, scanned: t.scanned()}
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
	s := w.topic.inForce.settings()
	return s.Tick == d.tick && w.topic.scanned() == d.scanned && (s.Workers == 0 || w.index < s.Workers)
}
