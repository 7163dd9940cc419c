package shard

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

const (
	// gatherBeside is how many calls are awaited before others gather: with two at a
	// time Redis works while answers are read, and two goroutines never wait.
	gatherBeside = 2
	// gatherPatience is how long an entry waits for an answer that others await before
	// it is sent beside them: a lost answer holds up those alone who wait for it, and a
	// distant Redis delays nobody by more.
	gatherPatience = time.Millisecond
)

// lanes gather what many goroutines schedule one by one: few calls at a time are sent at
// once, and what comes while their answers are awaited shares the next call, since a
// script costs Redis more than the task that it stores. Of a Redis Cluster each shard has a lane of
// its own, so that a master that is away holds up no others.
type lanes struct {
	beside   int
	patience time.Duration
	mu       sync.Mutex
	all      map[int]*lane
}

// lane is the calls that entries share. What its mutex guards is its own and its
// gathered ones'.
type lane struct {
	mu     sync.Mutex
	flying int       // calls that are awaited
	open   *gathered // what waits for an answer of theirs; nil: nothing
}

// gathered is one call of several goroutines' entries.
type gathered struct {
	ctx     context.Context // ends when nobody waits for the call
	cancel  context.CancelFunc
	waiting []*waiter
	ids     map[string]bool
	bytes   int
	present int // how many still wait
	timer   *time.Timer
	done    chan struct{} // closed once the results are there
}

type waiter struct {
	entry  Entry
	result Scheduled
	left   bool // it no longer waits; guarded by the lane's mutex
}

// ScheduleOne stores a task like Schedule, in one call with what other goroutines
// schedule meanwhile. Each ends with its own ctx; where the call was sent by then the
// task may be stored yet.
func (r *Router) ScheduleOne(ctx context.Context, e Entry) Scheduled {
	l := r.lane(e.ID)
	l.mu.Lock()
	if l.flying < r.lanes.beside {
		l.flying++
		l.mu.Unlock()
		defer r.next(l)
		return r.Schedule(ctx, []Entry{e})[0]
	}
	if g := l.open; g != nil && !g.takes(e) {
		l.take()
		go r.fly(l, g)
	}
	if l.open == nil {
		l.open = r.gather(ctx, l)
	}
	g, w := l.open, &waiter{entry: e}
	at := g.add(w)
	l.mu.Unlock()
	select {
	case <-g.done:
		return w.result
	case <-ctx.Done():
		return Scheduled{Err: l.leave(ctx, g, at)}
	}
}

// lane is that of a task.
func (r *Router) lane(id string) *lane {
	n := 0
	if _, ok := r.rdb.(*redis.ClusterClient); ok {
		if p := r.Known(); p.Epoch > 0 {
			n = p.New(id)
		}
	}
	r.lanes.mu.Lock()
	defer r.lanes.mu.Unlock()
	l := r.lanes.all[n]
	if l == nil {
		l = &lane{}
		r.lanes.all[n] = l
	}
	return l
}

// gather begins a call, which is sent after a while even if the answer that it waits
// for doesn't come. What hooks of the client find in its context is that of the first.
func (r *Router) gather(ctx context.Context, l *lane) *gathered {
	g := &gathered{ids: map[string]bool{}, done: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	g.timer = time.AfterFunc(r.lanes.patience, func() {
		l.mu.Lock()
		late := l.open == g
		if late {
			l.take()
		}
		l.mu.Unlock()
		if late {
			r.fly(l, g)
		}
	})
	return g
}

// takes says that an entry may share the call: of each ID there is one at most, and a
// call is one script of each shard.
func (g *gathered) takes(e Entry) bool {
	return !g.ids[e.ID] && len(g.waiting) < scriptTasks && g.bytes+len(e.Body) <= scriptBytes
}

func (g *gathered) add(w *waiter) (at int) {
	g.waiting = append(g.waiting, w)
	g.ids[w.entry.ID] = true
	g.bytes += len(w.entry.Body)
	g.present++
	return len(g.waiting) - 1
}

// take makes what waits a call under way. The lane is locked.
func (l *lane) take() *gathered {
	g := l.open
	if g != nil {
		l.open = nil
		l.flying++
		g.timer.Stop()
	}
	return g
}

// landed ends a call, and returns what is to be sent in its place.
func (r *Router) landed(l *lane) (next *gathered) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flying--; l.flying >= r.lanes.beside {
		return nil
	}
	return l.take()
}

// leave gives up a place in a call.
func (l *lane) leave(ctx context.Context, g *gathered, at int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.present--
	g.waiting[at].left = true
	if l.open == g {
		delete(g.ids, g.waiting[at].entry.ID)
		return Unasked(ctx.Err())
	}
	if g.present == 0 {
		g.cancel()
	}
	return fmt.Errorf("%w: %w", task.ErrUncertain, ctx.Err())
}

// next ends a call, and has what gathered meanwhile sent. It is deferred: a hook of the
// client may panic, or end its goroutine, and others wait behind it.
func (r *Router) next(l *lane) {
	if g := r.landed(l); g != nil {
		go r.fly(l, g)
	}
}

// errUnanswered is what those get who wait for a call that a hook ended.
var errUnanswered = fmt.Errorf("%w: a hook of the client ended the call", task.ErrUncertain)

// fly sends a call. What a caller that left asked for is in no send that begins later,
// repeats included: the caller may have cancelled the task meanwhile.
func (r *Router) fly(l *lane, g *gathered) {
	defer r.next(l)
	defer g.end()
	l.mu.Lock()
	var all []*waiter
	var entries []Entry
	for _, w := range g.waiting {
		if !w.left {
			w.result.Err = errUnanswered
			all, entries = append(all, w), append(entries, w.entry)
		}
	}
	l.mu.Unlock()
	if len(all) == 0 {
		return
	}
	wanted := func(i int) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !all[i].left
	}
	for i, s := range r.schedule(g.ctx, entries, wanted) {
		all[i].result = s
	}
}

// end tells those who wait. Whom it wakes is likely to have the next task, which then
// shares the next call.
func (g *gathered) end() {
	close(g.done)
	g.cancel()
	runtime.Gosched()
}
