package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/bulk"
)

// maxChanges is how many ended changes are kept.
const maxChanges = 100

// change is an action on tasks. It runs in the console, so no browser has to wait for it.
type change struct {
	ID, Topic, By string
	// Title names the action and Done its result: "Replay", "Replayed".
	Title, Done string
	// Back is the page with the tasks.
	Back link
	// Command does the same.
	Command string
	do      func(ctx context.Context, progress func(done, of int64)) (bulk.Counts, error)
	// after is called when the change has ended, before anybody sees that.
	after func()

	mu    sync.Mutex
	state changeState
}

// changeState says how far a change is.
type changeState struct {
	Began, Ended time.Time // Ended is zero while it runs
	// Visited is how many tasks it has visited, of about Of; 0 if that isn't known.
	Visited, Of int64
	Counts      bulk.Counts
	Error       string
}

// State returns how far the change is.
func (c *change) State() changeState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// run carries out the change until ctx ends.
func (c *change) run(ctx context.Context) {
	n, err := c.do(ctx, func(visited, of int64) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.state.Visited, c.state.Of = visited, of
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Counts, c.state.Ended = n, time.Now()
	if err != nil {
		c.state.Error = err.Error()
	}
	c.after()
}

// busyError says which change of a topic runs.
type busyError struct{ running *change }

func (e *busyError) Error() string {
	return fmt.Sprintf("another change of topic %s runs; it is by %s", e.running.Topic, e.running.By)
}

// changes has the changes that run, and the last ones that ended. Its methods are safe for
// concurrent use.
type changes struct {
	begin chan func(context.Context) // to have run call them

	mu  sync.Mutex
	all []*change // the oldest first
}

func newChanges() *changes { return &changes{begin: make(chan func(context.Context))} }

// start has run carry out a change, and returns its ID. It returns a *busyError if another
// change of the topic runs.
func (c *changes) start(ctx context.Context, one *change) (id string, err error) {
	one.ID, one.state.Began = rand.Text(), time.Now()
	if err := c.keep(one); err != nil {
		return "", err
	}
	select {
	case c.begin <- one.run:
		return one.ID, nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = slices.DeleteFunc(c.all, func(other *change) bool { return other == one })
		return "", errors.New("the console stops; nothing was changed")
	}
}

// keep adds a change, and forgets old ones.
func (c *changes) keep(one *change) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.all {
		if other.Topic == one.Topic && other.State().Ended.IsZero() {
			return &busyError{other}
		}
	}
	c.all = append(c.all, one)
	more := len(c.all) - maxChanges
	c.all = slices.DeleteFunc(c.all, func(old *change) bool {
		gone := more > 0 && !old.State().Ended.IsZero()
		if gone {
			more--
		}
		return gone
	})
	return nil
}

// find returns a change by its ID; nil if it isn't kept.
func (c *changes) find(id string) *change {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		if one.ID == id {
			return one
		}
	}
	return nil
}

// newest returns at most n changes of a topic, or of all if topic is "", the newest first.
func (c *changes) newest(topic string, n int) (some []*change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range slices.Backward(c.all) {
		if len(some) < n && (topic == "" || one.Topic == topic) {
			some = append(some, one)
		}
	}
	return some
}

// run carries out changes, examinations and questions about queues until ctx ends. It returns
// when the last one has ended.
func (c *changes) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case work := <-c.begin:
			all.Go(func() { work(ctx) })
		}
	}
}
