package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Removal removes a topic from Redis.
type Removal struct {
	Topic *shard.Topic
	// Purge also removes stored tasks. Without it stored tasks prevent the removal.
	Purge bool
}

// Check returns how many tasks are stored, including those that an interrupted removal
// left. It returns an error if there are any and Purge is false, but not after an
// interrupted removal. For a topic that is unknown to Redis the error is
// task.ErrUnknownTopic.
func (r Removal) Check(ctx context.Context) (pending int64, err error) {
	p, err := r.Topic.Placement(ctx)
	removed := errors.Is(err, task.ErrUnknownTopic)
	if err != nil && !removed {
		return 0, err
	}
	shards := p.Scanned()
	if removed {
		known, listErr := r.Topic.Store().Registry().Topics(ctx)
		if listErr != nil || !slices.Contains(known, r.Topic.Name()) {
			return 0, cmp.Or(listErr, err)
		}
		if shards = max(p.Shards, p.Previous); shards == 0 {
			return 0, nil // it was never served
		}
	}
	stats, err := r.Topic.Stats(ctx, shards)
	for _, v := range stats {
		pending += v.Pending
	}
	if err == nil && pending > 0 && !r.Purge && !removed {
		err = fmt.Errorf("topic %s holds %d tasks; let them be delivered, or remove them with --purge", r.Topic.Name(),
			pending)
	}
	return pending, err
}

// Run removes the topic and returns how many tasks it removed. From then on the topic's
// shards refuse producers that still know it. Tasks that arrived after Check bring the
// topic back, unless Purge is set. A topic that is created again meanwhile keeps the
// tasks stored in it from then on.
func (r Removal) Run(ctx context.Context) (int64, error) {
	for {
		p, err := r.Topic.Placement(ctx)
		if err != nil && !errors.Is(err, task.ErrUnknownTopic) {
			return 0, err
		}
		if p.Epoch == 0 { // no scanner ever served it
			return 0, r.Topic.Forget(ctx, p)
		}
		if p.Phase == shard.Migrating && !r.Purge {
			return 0, fmt.Errorf("topic %s: its shard count is changing; wait for the end, or remove it with --purge",
				r.Topic.Name())
		}
		if done, err := r.Topic.Remove(ctx, p); err != nil {
			return 0, err
		} else if done {
			return r.empty(ctx, p.Gone())
		}
	}
}

// empty clears a topic whose shards accept no more tasks.
func (r Removal) empty(ctx context.Context, gone shard.Placement) (int64, error) {
	went, left, err := r.Topic.Clear(ctx, gone, r.Purge)
	var moved *shard.MovedError
	if errors.As(err, &moved) {
		return went, fmt.Errorf("topic %s was created again meanwhile; it stays", r.Topic.Name())
	}
	if err != nil {
		return went, err
	}
	if left > 0 {
		_, err := r.Topic.Ensure(ctx, gone.Shards)
		return went, errors.Join(fmt.Errorf("topic %s: %d tasks arrived meanwhile; it stays: set its document again, or "+
			"remove it with --purge", r.Topic.Name(), left), err)
	}
	return went, r.Topic.Forget(ctx, gone)
}
