package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
)

// maxRestarts bounds how often one operation starts over because the placement
// changed under it. A change of the shard count takes two steps, so even many
// changes in a row stay far below.
const maxRestarts = 100

// topic is what this client knows of one topic: the placement as it last heard
// of it. It may be old; shards that have seen a newer one refuse it.
type topic struct {
	*shard.Topic

	mu      sync.Mutex
	known   shard.Placement // Epoch 0: none read yet
	touched map[int]int64   // by shard: the epoch its gate is known to be at
}

func (c *Client) topic(name string) *topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[name]
	if t == nil {
		t = &topic{Topic: c.store.Topic(name), touched: map[int]int64{}}
		c.topics[name] = t
	}
	return t
}

// placement returns the one known, reading it if there is none.
func (t *topic) placement(ctx context.Context) (shard.Placement, error) {
	t.mu.Lock()
	p := t.known
	t.mu.Unlock()
	if p.Epoch > 0 {
		return p, nil
	}
	return t.refresh(ctx)
}

func (t *topic) refresh(ctx context.Context) (shard.Placement, error) {
	p, err := t.Topic.Placement(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.known = shard.Placement{}
		return p, err
	}
	t.known = p
	return p, nil
}

// touch shows a shard the placement, unless it is known to have seen it.
func (t *topic) touch(ctx context.Context, at int, p shard.Placement) error {
	t.mu.Lock()
	seen := t.touched[at] == p.Epoch
	t.mu.Unlock()
	if seen {
		return nil
	}
	if _, err := t.Touch(ctx, at, p); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touched[at] = p.Epoch
	return nil
}

// deleteOld removes the copies that tasks left at their old shard, the closing
// step of an operation on tasks that are moving house. A shard that has seen a
// newer placement has none: the movers of this one were done with it. One that
// came late is sent again: what it closes is stored already.
func (t *topic) deleteOld(ctx context.Context, old int, p shard.Placement, ids ...string) error {
	for range maxRestarts {
		notAfter, err := t.NotAfter(ctx)
		if err != nil {
			return err
		}
		_, err = t.Delete(ctx, old, p, notAfter, false, ids...)
		var moved *shard.MovedError
		switch {
		case errors.As(err, &moved):
			return nil
		case !errors.Is(err, shard.ErrLate):
			return err
		}
		t.ForgetClock()
	}
	return fmt.Errorf("topic %s: shard %d was reached late %d times during one operation: %w", t.Name(), old, maxRestarts, shard.ErrLate)
}

// retry runs an operation under the placement known, and again from its
// beginning under a newer one whenever a shard says that there is one.
func (t *topic) retry(ctx context.Context, operation func(p shard.Placement) error) error {
	p, err := t.placement(ctx)
	for range maxRestarts {
		if err != nil {
			return err
		}
		err = operation(p)
		if !t.outdated(err) {
			return err
		}
		p, err = t.renew(ctx, err)
	}
	return fmt.Errorf("topic %s: its placement changed %d times during one operation: %w", t.Name(), maxRestarts, err)
}

func (t *topic) outdated(err error) bool {
	var moved *shard.MovedError
	return errors.As(err, &moved) || errors.Is(err, shard.ErrLate)
}

// renew learns what an operation was refused for: the new placement, or the
// time.
func (t *topic) renew(ctx context.Context, refusal error) (shard.Placement, error) {
	t.ForgetClock()
	p, err := t.refresh(ctx)
	var moved *shard.MovedError
	if err != nil || !errors.As(refusal, &moved) || p.Epoch >= moved.Placement.Epoch {
		return p, err
	}
	if err := t.Restore(ctx, moved.Placement); err != nil {
		return p, err
	}
	return t.refresh(ctx)
}

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
