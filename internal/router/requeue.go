package router

import (
	"context"
	"fmt"

	"github.com/duefleet/duefleet/internal/shard"
)

// Requeue stores a task for its consumer and reports whether it did. A task that was put,
// moved, replayed or stored by its consumer after the delivery stays as it is. One
// exception is a task that a consumer stored after the delivery of an older version.
// Requeue replaces it: that chain is superseded, and nothing else would retry this task.
func (r *Router) Requeue(ctx context.Context, a shard.Requeue) (stored bool, err error) {
	if a.Op == "" {
		a.Op = shard.NewOp()
	}
	var replace shard.Op
	for range maxRestarts {
		stays, err := r.requeue(ctx, a, replace)
		older := false
		if err == nil && stays != nil && stays.Op != "" {
			older, err = r.topic.Older(ctx, a, *stays)
		}
		if err != nil {
			return false, fmt.Errorf("store task %q of topic %s again: %w", a.ID, r.topic.Name(), err)
		}
		if !older {
			return stays == nil, nil
		}
		replace = stays.Op
	}
	return false, nil
}

// requeue keeps to the order of a put: while the task is moving, its old shard sees the
// placement first and loses its copy last. A copy there that was stored after the
// delivery stays, unless the new shard has had the task already.
func (r *Router) requeue(ctx context.Context, a shard.Requeue, replace shard.Op) (stays *shard.Kept, err error) {
	t := tries{router: r}
	for t.next(ctx) {
		stays, t.err = r.requeueUnder(ctx, t.placement, a, replace)
	}
	return stays, t.err
}

func (r *Router) requeueUnder(ctx context.Context, p shard.Placement, a shard.Requeue,
	replace shard.Op) (stays *shard.Kept, err error) {
	how := shard.Requeuing{Replace: replace, Moving: p.Moving(a.ID)}
	if how.Moving {
		there, err := r.topic.Shard(p.Old(a.ID)).Fence(ctx, p, a.ID)
		if err != nil {
			return nil, err
		}
		if old := there[0]; old != nil {
			if old.Op == string(a.Op) {
				return nil, nil // stored before the change began; a mover brings it along
			}
			newer := old.Due.UnixMilli() > a.Due || old.Due.UnixMilli() == a.Due && old.Attempt < a.Attempt
			if newer && old.Op != string(replace) {
				how.Since = &shard.Kept{Due: old.Due.UnixMilli(), Scheduled: old.Scheduled.UnixMilli(), Op: shard.Op(old.Op)}
			}
		}
	}
	deadline, err := r.scripts.Deadline(ctx)
	if err != nil {
		return nil, err
	}
	now, err := r.topic.Now(ctx)
	if err != nil {
		return nil, err
	}
	_, errs := r.join(ctx, now, []shard.Entry{{ID: a.ID, Body: a.Body}})
	if errs[0] != nil {
		return nil, errs[0]
	}
	stays, err = r.topic.Shard(p.New(a.ID)).Requeue(ctx, p, deadline, a, how)
	if err != nil || stays != nil || !how.Moving {
		return stays, err
	}
	return nil, r.closeOld(ctx, p, shard.Names{Shard: p.Old(a.ID), IDs: []string{a.ID}})[0]
}
