package scanner

import (
	"context"
	"errors"
	"fmt"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Removal takes a topic out of Redis.
type Removal struct {
	Topic *shard.Topic
	// Purge removes tasks that are stored, too; without it they are a reason to
	// refuse.
	Purge bool
}

// Check refuses while tasks are stored that are not to be purged.
func (r Removal) Check(ctx context.Context) error {
	p, err := r.Topic.Placement(ctx)
	if errors.Is(err, task.ErrUnknownTopic) {
		return nil
	}
	if err != nil {
		return err
	}
	pending, err := r.pending(ctx, p)
	if err == nil && pending > 0 && !r.Purge {
		err = fmt.Errorf("topic %s holds %d tasks; let them be delivered, or remove them with --purge", r.Topic.Name(), pending)
	}
	return err
}

func (r Removal) pending(ctx context.Context, p shard.Placement) (int64, error) {
	stats, err := r.Topic.Stats(ctx, p.Scanned())
	var n int64
	for _, v := range stats {
		n += v.Pending
	}
	return n, err
}

// Run removes the topic and answers how many tasks went with it. From then on
// its shards refuse producers that still know it. Tasks that came in since Check
// bring the topic back, unless they may be purged.
func (r Removal) Run(ctx context.Context) (int64, error) {
	for {
		p, err := r.Topic.Placement(ctx)
		if err != nil && !errors.Is(err, task.ErrUnknownTopic) {
			return 0, err
		}
		if p.Epoch == 0 { // no scanner ever served it
			return 0, r.Topic.Forget(ctx)
		}
		if p.Phase == shard.Migrating && !r.Purge {
			return 0, fmt.Errorf("topic %s: its shard count is changing; wait for the end, or remove it with --purge", r.Topic.Name())
		}
		if done, err := r.Topic.Remove(ctx, p); err != nil {
			return 0, err
		} else if done {
			return r.empty(ctx, p)
		}
	}
}

// empty clears a topic whose shards take no more tasks.
func (r Removal) empty(ctx context.Context, p shard.Placement) (int64, error) {
	pending, err := r.pending(ctx, p)
	if err != nil {
		return 0, err
	}
	if pending > 0 && !r.Purge {
		_, err := r.Topic.Ensure(ctx, p.Shards)
		return 0, errors.Join(fmt.Errorf("topic %s: %d tasks came in meanwhile; it stays", r.Topic.Name(), pending), err)
	}
	if err := r.Topic.Purge(ctx, max(p.Shards, p.Previous)); err != nil {
		return 0, err
	}
	return pending, r.Topic.Forget(ctx)
}
