package shard

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Convoy sends the draws, looks and settlements of many topics in few pipelines. A call that comes
// alone is sent at once. While a pipeline is on its way to a node, other calls for that node gather
// for the next one. A node that hangs delays the calls of no other. The functions that get the
// answers must return soon: others wait for them. It is safe for concurrent use.
type Convoy struct {
	// Began is when the convoy was made. It gives ticks a common beginning.
	Began time.Time
	// Slot is the time between two ends of slots, in which calls gather; ConvoySlot except in tests.
	Slot    time.Duration
	scripts *luascript.Client
	running sync.WaitGroup

	mu      sync.Mutex
	waiting map[string][]load  // by node; a node with an entry has a goroutine that sends
	gathers map[string]*gather // by node
	lags    map[string]*lag    // by node
}

// gather holds functions that are called at the end of a slot.
type gather struct {
	calls []func()
	timer *time.Timer
	soon  bool // it fires at once.
}

// ConvoySlot is the time between two ends of slots.
const ConvoySlot = 20 * time.Millisecond

// load holds the calls that one caller adds.
type load struct {
	calls []luascript.Call
	done  answered
}

type answered func(replies []luascript.Reply, sent, heard time.Time)

const (
	// convoyTimeout bounds a pipeline, because another server may have taken over. Far from
	// Redis a new connection may take a second.
	convoyTimeout = 4 * time.Second
	// convoyKeys is about how many keys the calls of one pipeline have, or half as many as their
	// arguments. That is 300 draws with four shards, 30 with 64, or 4,000 settled tasks. Redis serves
	// nobody else for some 10 ms then.
	convoyKeys = 2048
)

// NewConvoy returns a convoy for all topics of a store.
func (s *Store) NewConvoy() *Convoy {
	return &Convoy{Began: time.Now(), Slot: ConvoySlot, scripts: s.scripts, waiting: map[string][]load{},
		gathers: map[string]*gather{}, lags: map[string]*lag{}}
}

// Wait waits until all answers were passed on.
func (c *Convoy) Wait() { c.running.Wait() }

// Gather calls f before the next pipeline for a node at the end of a slot. Slots have a common
// beginning, so the calls that many topics add in f share a pipeline.
func (c *Convoy) Gather(node string, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.gathers[node]
	if g == nil {
		g = &gather{}
		c.gathers[node] = g
		c.running.Add(1)
		g.timer = time.AfterFunc(c.Slot-time.Since(c.Began)%c.Slot, func() {
			defer c.running.Done()
			c.gathered(node)
		})
	}
	g.calls = append(g.calls, f)
}

// Hurry ends the slot in which calls for a node gather.
func (c *Convoy) Hurry(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.gathers[node]; g != nil && !g.soon && g.timer.Stop() {
		g.soon = true
		g.timer.Reset(0)
	}
}

// gathered ends a slot. This goroutine sends what is added, unless another one sends to the node.
func (c *Convoy) gathered(node string) {
	c.mu.Lock()
	g := c.gathers[node]
	delete(c.gathers, node)
	_, sending := c.waiting[node]
	if !sending {
		c.waiting[node] = nil
	}
	c.mu.Unlock()
	for _, f := range g.calls {
		f()
	}
	if !sending {
		c.send(node)
	}
}

// add sends calls whose keys lie on one node, in a pipeline of their own or with others. Then
// it calls done with the replies, in the order of the calls, and when the pipeline was sent and
// answered.
func (c *Convoy) add(node string, calls []luascript.Call, done answered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting, sending := c.waiting[node]
	c.waiting[node] = append(waiting, load{calls, done})
	if !sending {
		c.running.Go(func() { c.send(node) })
	}
}

// send sends what waits for a node until nothing does.
func (c *Convoy) send(node string) {
	for loads := c.take(node); len(loads) > 0; loads = c.take(node) {
		var calls []luascript.Call
		for _, l := range loads {
			calls = append(calls, l.calls...)
		}
		ctx, cancel := context.WithTimeout(context.Background(), convoyTimeout)
		sent := time.Now()
		replies := c.scripts.RunAll(ctx, calls)
		cancel()
		heard := time.Now()
		for _, l := range loads {
			l.done(replies[:len(l.calls)], sent, heard)
			replies = replies[len(l.calls):]
			runtime.Gosched() // a due task that has to be claimed doesn't wait for all of them
		}
	}
}

// take returns what to send to a node next; none if nothing waits.
func (c *Convoy) take(node string) []load {
	c.mu.Lock()
	defer c.mu.Unlock()
	loads, n, keys := c.waiting[node], 0, 0
	for n < len(loads) {
		for _, call := range loads[n].calls {
			keys += max(len(call.Keys), len(call.Args)/2)
		}
		if n > 0 && keys > convoyKeys {
			break
		}
		n++
	}
	if n == 0 {
		delete(c.waiting, node)
		return nil
	}
	c.waiting[node] = loads[n:]
	return loads[:n:n]
}

// lag is by how much this process's clock was ahead of a node's when an answer with its time
// arrived, at least.
type lag struct {
	since         time.Time // when least begins
	least, before time.Duration
}

// lagFor is the time in which the least lag is looked for, and again for the one before it.
const lagFor = 2 * time.Second

// Heard returns when the clock of a node showed now, by this process's clock. The call that read it
// was sent and heard at these instants, and the result lies between them. An answer may be old when
// it is heard: in a pipeline Redis has carried out other calls after it. And this process may have
// been busy. So Heard goes by the answer that came soonest in the last seconds.
func (c *Convoy) Heard(node string, now, sent, heard time.Time) time.Time {
	shown := now.Sub(c.Began.Round(0)) // without c.Began's monotonic clock
	ahead := heard.Sub(c.Began) - shown
	c.mu.Lock()
	l := c.lags[node]
	switch {
	case l == nil:
		l = &lag{since: heard, least: ahead, before: ahead}
		c.lags[node] = l
	case heard.Sub(l.since) > lagFor:
		l.since, l.least, l.before = heard, ahead, l.least
	default:
		l.least = min(l.least, ahead)
	}
	ahead = min(l.least, l.before)
	c.mu.Unlock()
	switch at := c.Began.Add(shown + ahead); {
	case at.Before(sent): // the node's clock was set, or is another server's
		return sent
	case at.After(heard):
		return heard
	default:
		return at
	}
}
