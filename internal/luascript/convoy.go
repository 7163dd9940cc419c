package luascript

import (
	"context"
	"sync"
	"time"
)

// Convoy sends the calls of many callers in few pipelines. A call that comes alone is sent at
// once. While a pipeline is on its way to a node, other calls for that node gather for the
// next one. A node that hangs delays the calls of no other. It is safe for concurrent use.
type Convoy struct {
	client  *Client
	timeout time.Duration // of a pipeline
	running sync.WaitGroup

	mu      sync.Mutex
	waiting map[string][]load // by node; a node with an entry has a goroutine that sends
}

// load holds the calls that one caller adds.
type load struct {
	calls []Call
	done  func([]Reply)
}

// convoyCalls is about how many calls go in one pipeline. Redis serves nobody else meanwhile.
const convoyCalls = 256

// NewConvoy returns a convoy whose pipelines get an answer within timeout, or an error.
func (c *Client) NewConvoy(timeout time.Duration) *Convoy {
	return &Convoy{client: c, timeout: timeout, waiting: map[string][]load{}}
}

// Add sends calls whose keys lie on one node, in a pipeline of their own or with others. Then
// it calls done with the replies, in the order of the calls. done must return soon: others
// wait for it.
func (c *Convoy) Add(node string, calls []Call, done func(replies []Reply)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting, sending := c.waiting[node]
	c.waiting[node] = append(waiting, load{calls, done})
	if !sending {
		c.running.Go(func() { c.send(node) })
	}
}

// Wait waits until all that was added is done.
func (c *Convoy) Wait() { c.running.Wait() }

// send sends what waits for a node until nothing does.
func (c *Convoy) send(node string) {
	for loads := c.take(node); len(loads) > 0; loads = c.take(node) {
		var calls []Call
		for _, l := range loads {
			calls = append(calls, l.calls...)
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
		replies := c.client.RunAll(ctx, calls)
		cancel()
		for _, l := range loads {
			l.done(replies[:len(l.calls)])
			replies = replies[len(l.calls):]
		}
	}
}

// take returns what to send to a node next; none if nothing waits.
func (c *Convoy) take(node string) []load {
	c.mu.Lock()
	defer c.mu.Unlock()
	loads, n, calls := c.waiting[node], 0, 0
	for n < len(loads) && (n == 0 || calls+len(loads[n].calls) <= convoyCalls) {
		calls += len(loads[n].calls)
		n++
	}
	if n == 0 {
		delete(c.waiting, node)
		return nil
	}
	c.waiting[node] = loads[n:]
	return loads[:n:n]
}
