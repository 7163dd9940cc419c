package reshard

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

const (
	// moveShare is the most that moving takes of one worker's time, or of several
	// workers' time together. They share Redis, which does one thing at a time. The rest
	// keeps Redis free for delivering and for producers. See docs/adr/0009.
	moveShare = 0.25
	// moveScan is about how many tasks a step looks at, and so the most that it moves.
	// The more tasks a script moves, the longer it delays what is due.
	moveScan = 100
	// moveLease is how long an export lasts. Imports that come too late extend it, up to
	// moveLeaseMost. A mover that dies leaves its export for that long. So tasks that are
	// due within twice that time aren't exported, until a shard has seen movePasses
	// passes.
	moveLease     = 5 * time.Second
	moveLeaseMost = time.Minute
	movePasses    = 200
	// moveMargin is how long before the end of an export its tasks are no longer
	// imported. The clocks of two Redis servers differ by less.
	moveMargin = time.Second
	// moveRest is how long a shard rests when its remaining misplaced tasks are leased or
	// about to be delivered, or when another worker moves them.
	moveRest = 100 * time.Millisecond
	// stopMoving is how long a step may go on when the scanner stops.
	stopMoving = 5 * time.Second
	// moveLongest is the longest time that a worker rests between two steps.
	moveLongest = 10 * time.Second
)

// Worker is a worker that moves tasks.
type Worker struct {
	name   string        // unique in the fleet
	moving chan struct{} // held while it moves tasks
	turn   time.Time     // no step before it; moving protects it
}

// NewWorker returns a worker with a name that is unique in the fleet.
func NewWorker(name string) *Worker { return &Worker{name: name, moving: make(chan struct{}, 1)} }

// Move moves misplaced tasks of the shards that a worker polls, in steps with rests
// between them. It returns when tick ends, or when nothing is left to do. If a step of an
// earlier tick still hangs, it first waits for that. A step may outlast the tick, and may
// outlast life by stopMoving.
func (r *Resharder) Move(life, tick context.Context, w *Worker, shards []int, p shard.Placement) {
	select {
	case <-tick.Done():
	case w.moving <- struct{}{}:
		defer func() { <-w.moving }()
		sure, cancel := endsAfter(life, stopMoving)
		defer cancel()
		r.move(tick, sure, w, shards, p)
	}
}

// Rests reports whether Move would find nothing to do.
func (r *Resharder) Rests(shards []int, p shard.Placement) bool {
	return p.Phase == shard.Stable && r.view.wereShown(shards, p)
}

// endsAfter returns a context that ends d after ctx does, or when the returned function
// is called.
func endsAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(d, cancel)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() { stop(); cancel() }
}

// move takes steps until tick ends. The first shard is chosen at random: of many shards a
// tick has time for few, and none should always come last.
func (r *Resharder) move(tick, sure context.Context, w *Worker, shards []int, p shard.Placement) {
	var all []*mover
	from := rand.IntN(len(shards))
	for i := range shards {
		if m := r.newMover(w.name, shards[(from+i)%len(shards)], p); m.state != moverOff {
			all = append(all, m)
		}
	}
	defer func() {
		for _, m := range all {
			m.leave(tick)
		}
	}()
	r.showAll(tick, all, p)
	for m := nextOf(all); m != nil; m = nextOf(all) {
		retry.Sleep(tick, max(time.Until(m.rest), time.Until(w.turn)))
		if tick.Err() != nil {
			return
		}
		select {
		case <-tick.Done():
			return
		case r.cfg.Step <- struct{}{}:
		}
		began := time.Now()
		if m.try(tick, sure) && m.state != moverIdle {
			w.turn = turnAfter(began, time.Now(), shareOf(r.movers(p)))
		}
		<-r.cfg.Step
	}
}

// movers returns how many workers of the fleet may move tasks at the same time. That is
// one per shard that isn't clean, and no more than there are workers.
func (r *Resharder) movers(p shard.Placement) int {
	return min(r.view.unclean(p), r.cfg.Live()*r.cfg.Workers())
}

// nextOf returns the mover that may take a step first; nil if nothing is left to do.
func nextOf(all []*mover) (first *mover) {
	for _, m := range all {
		if m.state != moverOff && (first == nil || m.rest.Before(first.rest)) {
			first = m
		}
	}
	return first
}

// shareOf returns the share of its time that each of movers workers may spend on moving.
func shareOf(movers int) float64 {
	return moveShare / float64(max(movers, 1))
}

// turnAfter returns when the next step may begin, if moving takes a share of the time.
// With many shards that is in a later tick of the worker, at another shard. After a step
// that stalled the rest is no longer than moveLongest.
func turnAfter(began, ended time.Time, share float64) time.Time {
	rest := time.Duration(float64(ended.Sub(began)) * (1/share - 1))
	return ended.Add(min(rest, moveLongest))
}

// showAll shows the placement to the movers' shards in one round trip, and finds out
// which of them may need moving.
func (r *Resharder) showAll(ctx context.Context, all []*mover, p shard.Placement) {
	at := make([]shard.Names, len(all))
	for i, m := range all {
		at[i].Shard = m.at
	}
	for i, fenced := range r.cfg.Topic.FenceAll(context.WithoutCancel(ctx), p, at) {
		m := all[i]
		if !m.check(ctx, fenced.Err) {
			continue
		}
		r.view.show(m.at, p)
		m.state = moverIdle
		if p.Phase != shard.Migrating || r.view.isClean(p, m.at) {
			m.state = moverOff
		}
	}
}
