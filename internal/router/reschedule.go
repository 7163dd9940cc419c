package router

import (
	"context"
	"errors"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Reschedule gives a stored task a new due time and returns it in ms, also with
// task.ErrReplicas. If there is no task it returns task.ErrNotFound. It fences and reads
// at the old shard, reschedules in the new one, and deletes from the old one. The new
// shard takes what was read if it never had the task.
//
// If there is no task, nothing changes, although a consumer may have it.
func (r *Router) Reschedule(ctx context.Context, id string, when shard.When) (due int64, err error) {
	ctx, probation := luascript.OnProbation(ctx)
	m := shard.Move{Op: shard.NewOp(), ID: id, When: when, Term: r.term}
	t := tries{router: r}
	for t.next(ctx) {
		due, t.err = r.rescheduleUnder(ctx, t.placement, m)
	}
	return due, probation.Judge(t.err)
}

func (r *Router) rescheduleUnder(ctx context.Context, p shard.Placement, m shard.Move) (int64, error) {
	deadline, err := r.scripts.Deadline(ctx)
	if err != nil {
		return 0, err
	}
	if !p.Moving(m.ID) {
		return r.topic.Shard(p.New(m.ID)).Reschedule(ctx, p, deadline, m)
	}
	old := p.Old(m.ID)
	there, err := r.topic.Shard(old).Fence(ctx, p, m.ID)
	if err != nil {
		return 0, err
	}
	if there[0] != nil && there[0].Op == string(m.Op) {
		return there[0].Due.UnixMilli(), nil // stored before the change began; a mover brings it along
	}
	m.Moving, m.Fallback = true, there[0]
	due, err := r.topic.Shard(p.New(m.ID)).Reschedule(ctx, p, deadline, m)
	gone := errors.Is(err, task.ErrNotFound)
	if err != nil && !gone || gone && m.Fallback == nil {
		return due, err
	}
	luascript.CarriedOut(ctx)
	closing := r.closeOld(ctx, p, shard.Names{Shard: old, IDs: []string{m.ID}})[0]
	switch {
	case errors.Is(closing, task.ErrReplicas):
		return due, closing
	case closing != nil:
		return 0, closing
	}
	return due, err
}
