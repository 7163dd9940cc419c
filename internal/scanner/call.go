package scanner

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// patience is for how long a worker waits for an answer of Redis before it goes on with
// its other shards. It is far longer than an answer takes, and far shorter than a tick.
const patience = 100 * time.Millisecond

// call is one call to Redis that runs beside its worker.
type call struct {
	decided atomic.Bool // the answer came in time, or else the worker left
	left    bool        // the worker went on without the answer; only the worker reads it
	over    bool        // the worker has noted the outcome; only the worker reads it
}

// answered reports whether the worker still waits for the call. The call's goroutine
// calls it once, when the answer is there.
func (c *call) answered() bool { return c.decided.CompareAndSwap(false, true) }

// calls are a worker's calls to Redis. One that hangs holds up no shard but its own: the
// worker waits for it for a moment, and notes its outcome when there is one.
type calls struct {
	running sync.WaitGroup
	news    chan struct{} // there are outcomes to note

	mu       sync.Mutex
	outcomes []func(context.Context)
}

// begin runs ask beside the worker. Afterwards the worker runs note, in its own goroutine.
func (c *calls) begin(ask func(*call), note func(context.Context, *call)) *call {
	one := &call{}
	c.running.Go(func() {
		ask(one)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.outcomes = append(c.outcomes, func(ctx context.Context) { one.over = true; note(ctx, one) })
		kick(c.news)
	})
	return one
}

// note notes the outcomes that are there.
func (c *calls) note(ctx context.Context) {
	c.mu.Lock()
	outcomes := c.outcomes
	c.outcomes = nil
	c.mu.Unlock()
	for _, note := range outcomes {
		note(ctx)
	}
}

// await waits until the outcomes of some calls are noted. It leaves those that have no
// answer after a while.
func (c *calls) await(ctx context.Context, patience time.Duration, some ...*call) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		c.note(ctx)
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

// leave gives up waiting for those that have no answer.
func leave(some []*call) {
	for _, one := range some {
		if !one.over && one.decided.CompareAndSwap(false, true) {
			one.left = true
		}
	}
}
