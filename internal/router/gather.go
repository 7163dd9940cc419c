package router

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

const (
	// gatherBeside is how many calls are in flight before others gather. With two, Redis
	// works while answers are read, and two goroutines never wait.
	gatherBeside = 2
	// gatherPatience is how long an entry waits for the answer to a call of others before
	// it is sent too. So a lost answer delays only its own callers, and a distant Redis
	// delays others by no more than this.
	gatherPatience = time.Millisecond
)

// batchers batches what many goroutines schedule one by one. Only a few calls are in flight
// at once. Entries that come meanwhile share the next call, since a script costs Redis
// more than the task that it stores (docs/adr/0017). In a Redis Cluster each shard has a
// batcher of its own, so that an unreachable master delays no others.
type batchers struct {
	beside   int
	patience time.Duration
	mu       sync.Mutex
	all      map[int]*batcher
}

// batcher has the calls that its entries share. Its mutex guards its own fields and those
// of its gathered calls.
type batcher struct {
	mu       sync.Mutex
	inFlight int       // calls in flight
	open     *gathered // the call that waits to be sent; nil: none
}

// gathered is one call with entries of several goroutines.
type gathered struct {
	ctx     context.Context // ends when nobody waits for the call
	cancel  context.CancelFunc
	waiting []*waiter
	ids     map[string]bool
	bytes   int
	present int // how many entries still wait
	timer   *time.Timer
	done    chan struct{} // closed once the results are there
}

type waiter struct {
	entry  shard.Entry
	result Scheduled
	left   bool // it no longer waits; guarded by the batcher's mutex
}

// ScheduleOne stores a task like Schedule, but shares its call with tasks that other
// goroutines schedule meanwhile. It returns the due time in ms and the error of Scheduled.
// It returns when its own ctx ends; if the call was sent by then, the task may still be
// stored.
func (r *Router) ScheduleOne(ctx context.Context, e shard.Entry) (due int64, err error) {
	l := r.batcher(e.ID)
	l.mu.Lock()
	if l.inFlight < r.batchers.beside {
		l.inFlight++
		l.mu.Unlock()
		defer r.next(l)
		one := r.schedule(ctx, []shard.Entry{e}, nil)[0]
		return one.Due, one.Err
	}
	if g := l.open; g != nil && !g.takes(e) {
		l.takeOpen()
		go r.sendGathered(l, g)
	}
	if l.open == nil {
		l.open = r.gather(ctx, l)
	}
	g, w := l.open, &waiter{entry: e}
	at := g.add(w)
	l.mu.Unlock()
	select {
	case <-g.done:
		return w.result.Due, w.result.Err
	case <-ctx.Done():
		return 0, l.leave(ctx, g, at)
	}
}

// batcher returns the batcher for a task. Without a Redis Cluster there is only one.
func (r *Router) batcher(id string) *batcher {
	n := 0
	if p := r.Known(); p.Epoch > 0 && r.topic.Store().Clustered() {
		n = p.New(id)
	}
	r.batchers.mu.Lock()
	defer r.batchers.mu.Unlock()
	l := r.batchers.all[n]
	if l == nil {
		l = &batcher{}
		r.batchers.all[n] = l
	}
	return l
}

// gather begins a call. After gatherPatience the call is sent even if no answer came. Its
// context has the values of the first entry's context, for hooks of the client.
func (r *Router) gather(ctx context.Context, l *batcher) *gathered {
	g := &gathered{ids: map[string]bool{}, done: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	g.timer = time.AfterFunc(r.batchers.patience, func() {
		l.mu.Lock()
		late := l.open == g
		if late {
			l.takeOpen()
		}
		l.mu.Unlock()
		if late {
			r.sendGathered(l, g)
		}
	})
	return g
}

// takes reports whether an entry may share the call. A call holds each ID once at most,
// and no more entries than one script takes.
func (g *gathered) takes(e shard.Entry) bool {
	return !g.ids[e.ID] && len(g.waiting) < scriptTasks && g.bytes+len(e.Body) <= scriptBytes
}

func (g *gathered) add(w *waiter) (at int) {
	g.waiting = append(g.waiting, w)
	g.ids[w.entry.ID] = true
	g.bytes += len(w.entry.Body)
	g.present++
	return len(g.waiting) - 1
}

// takeOpen removes the call that waits and counts it as in flight; nil if none waits. The
// caller must hold the batcher's lock.
func (l *batcher) takeOpen() *gathered {
	g := l.open
	if g != nil {
		l.open = nil
		l.inFlight++
		g.timer.Stop()
	}
	return g
}

// done ends a call, and returns the call to send in its place; nil if there is none.
func (r *Router) done(l *batcher) (next *gathered) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight--; l.inFlight >= r.batchers.beside {
		return nil
	}
	return l.takeOpen()
}

// leave gives up an entry's place in a call, and returns the error for its caller.
func (l *batcher) leave(ctx context.Context, g *gathered, at int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.present--
	g.waiting[at].left = true
	if l.open == g {
		delete(g.ids, g.waiting[at].entry.ID)
		return luascript.Unasked(ctx.Err())
	}
	if g.present == 0 {
		g.cancel()
	}
	return fmt.Errorf("%w: %w", task.ErrUncertain, ctx.Err())
}

// next ends a call and has the one that waits sent. It must be deferred: a hook of the
// client may panic or end its goroutine, and others wait for their turn.
func (r *Router) next(l *batcher) {
	if g := r.done(l); g != nil {
		go r.sendGathered(l, g)
	}
}

// errUnanswered is the result of entries whose call was ended by a hook of the client.
var errUnanswered = fmt.Errorf("%w: a hook of the client ended the call", task.ErrUncertain)

// sendGathered sends a call. If a caller has left, its entry is in no send that begins later,
// repeats included: the caller may have cancelled the task meanwhile.
func (r *Router) sendGathered(l *batcher, g *gathered) {
	defer r.next(l)
	defer g.end()
	l.mu.Lock()
	var all []*waiter
	var entries []shard.Entry
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

// end wakes the callers and lets them run. They are likely to have the next tasks, which
// then share the next call.
func (g *gathered) end() {
	close(g.done)
	g.cancel()
	runtime.Gosched()
}
