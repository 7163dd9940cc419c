package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// maxRestarts bounds how often one operation starts over because the placement
// changed under it. A change of the shard count takes two steps, so even many
// changes in a row stay far below.
const maxRestarts = 100

// Caller is a topic with what one client knows of its placement, as it last
// heard of it. It may be old; shards that have seen a newer one refuse it. It is
// safe for concurrent use.
type Caller struct {
	*Topic

	mu      sync.Mutex
	known   Placement         // Epoch 0: none read yet
	touched map[int]Placement // by shard: what its gate is known to have seen
}

// Caller returns a caller that knows no placement yet; keep one for each topic.
func (s *Store) Caller(topic string) *Caller {
	return &Caller{Topic: s.Topic(topic), touched: map[int]Placement{}}
}

// Known is the placement last heard of; its Epoch is 0 if there is none.
func (c *Caller) Known() Placement {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// Assume makes p the placement known, as a client that has not heard since has it.
func (c *Caller) Assume(p Placement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = p
}

// placement returns the one known, reading it if there is none.
func (c *Caller) placement(ctx context.Context) (Placement, error) {
	if p := c.Known(); p.Epoch > 0 {
		return p, nil
	}
	return c.refresh(ctx)
}

func (c *Caller) refresh(ctx context.Context) (Placement, error) {
	p, err := c.Placement(ctx)
	if err != nil {
		c.Relearn(ctx)
		c.Assume(Placement{})
		return p, err
	}
	c.Assume(p)
	return p, nil
}

// Show touches shards, in one round trip, but for those known to have seen the
// placement.
func (c *Caller) Show(ctx context.Context, p Placement, shards ...int) error {
	unseen := c.unseen(p, shards)
	if len(unseen) == 0 {
		return nil
	}
	var errs []error
	for i, touched := range c.TouchAll(ctx, p, unseen) {
		errs = append(errs, touched.Err)
		if touched.Err == nil {
			c.saw(unseen[i].Shard, p)
		}
	}
	return errors.Join(errs...)
}

func (c *Caller) unseen(p Placement, shards []int) (unseen []Names) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := map[int]bool{}
	for _, s := range shards {
		if !asked[s] && c.touched[s] != p {
			unseen = append(unseen, Names{Shard: s})
		}
		asked[s] = true
	}
	return unseen
}

func (c *Caller) saw(shard int, p Placement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.touched[shard] = p
}

// DeleteOld removes the copies that tasks left at their old shards, the closing
// step of an operation on tasks that are moving house, in one round trip. It
// answers an error or nil for each of the shards. One that has seen a newer
// placement has no copies: the movers of this one were done with it. One that was
// reached late is sent the same again: what it closes is stored already.
func (c *Caller) DeleteOld(ctx context.Context, p Placement, olds ...Names) []error {
	errs := make([]error, len(olds))
	todo := make([]int, len(olds))
	for i := range olds {
		todo[i] = i
	}
	for range maxRestarts {
		todo = c.deleteOld(ctx, p, olds, todo, errs)
		if len(todo) == 0 {
			break
		}
		c.ForgetClock()
	}
	for _, i := range todo {
		errs[i] = fmt.Errorf("topic %s: shard %d was reached late %d times during one operation: %w", c.name, olds[i].Shard, maxRestarts, ErrLate)
	}
	return errs
}

// deleteOld tries once for those of olds that are to do, and returns the late ones.
func (c *Caller) deleteOld(ctx context.Context, p Placement, olds []Names, todo []int, errs []error) (late []int) {
	notAfter, err := c.NotAfter(ctx)
	if err != nil {
		for _, i := range todo {
			errs[i] = err
		}
		return nil
	}
	calls := make([]call, len(todo))
	for n, i := range todo {
		calls[n] = c.deletion(p, notAfter, false, olds[i])
	}
	for n, cmd := range c.runAll(ctx, calls) {
		i := todo[n]
		_, _, err := answer(cmd)
		var moved *MovedError
		switch {
		case errors.Is(err, ErrLate):
			late = append(late, i)
		case err != nil && !errors.As(err, &moved):
			errs[i] = c.undeleted(olds[i].Shard, err)
		}
	}
	return late
}

// Retry runs an operation under the placement known, and again from its
// beginning under a newer one whenever a shard says that there is one.
func (c *Caller) Retry(ctx context.Context, operation func(p Placement) error) error {
	p, err := c.placement(ctx)
	var refusal error
	for range maxRestarts {
		if err != nil {
			return err
		}
		refusal = operation(p)
		if !c.Outdated(refusal) {
			return refusal
		}
		p, err = c.renew(ctx, refusal)
	}
	return fmt.Errorf("topic %s: refused %d times during one operation: %w", c.name, maxRestarts, refusal)
}

// Outdated says that an operation was refused for what its caller knows, and is
// to start over.
func (c *Caller) Outdated(err error) bool {
	var moved *MovedError
	return errors.As(err, &moved) || errors.Is(err, ErrLate)
}

// renew learns what an operation was refused for: the new placement, or the
// time. Where Redis has lost a placement that a shard has seen, the operation goes on
// under that one; to put it back is the scanners' work.
func (c *Caller) renew(ctx context.Context, refusal error) (Placement, error) {
	c.ForgetClock()
	p, err := c.refresh(ctx)
	var moved *MovedError
	if err != nil || !errors.As(refusal, &moved) || p.Epoch > moved.Placement.Epoch || p == moved.Placement {
		return p, err
	}
	switch seen := moved.Placement; {
	case p.Epoch == seen.Epoch:
		return p, c.forked(p, seen)
	case seen.Phase == Removed:
		return p, unknownTopic(c.name)
	default:
		c.Assume(seen)
		return seen, nil
	}
}
