package router

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/duefleet/duefleet/internal/shard"
)

// maxRestarts limits how often one operation starts over because the placement changed. A
// change of the shard count takes two steps, so the limit is far above what even many
// changes in a row need.
const maxRestarts = 100

// known is a router's last known placement of its topic. It may be outdated; a shard that
// has seen a newer one refuses it.
type known struct {
	mu        sync.Mutex
	placement shard.Placement         // Epoch 0: none read yet
	fenced    map[int]shard.Placement // by shard: a placement that its fence has seen
}

// Known returns the last known placement. Its Epoch is 0 if there is none.
func (r *Router) Known() shard.Placement {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	return r.known.placement
}

// Assume sets the known placement to p, which may be an outdated one.
func (r *Router) Assume(p shard.Placement) {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	r.known.placement = p
}

func (r *Router) refresh(ctx context.Context) (shard.Placement, error) {
	p, err := r.topic.Placement(ctx)
	if err != nil {
		r.scripts.Relearn(ctx)
		r.Assume(shard.Placement{})
		return p, r.topic.Meant(ctx, err)
	}
	r.Assume(p)
	return p, nil
}

// tries are the tries of one operation, each under a placement. After a shard has refused
// the placement or the deadline as outdated, the operation starts over:
//
//	t := tries{router: r}
//	for t.next(ctx) {
//		t.err = operation(ctx, t.placement)
//	}
//	return t.err
type tries struct {
	router    *Router
	placement shard.Placement
	begun     int
	err       error // of the last try
}

// next reports whether there is to be another try. It sets its placement: the known one,
// or a newer one after a refusal.
func (t *tries) next(ctx context.Context) bool {
	switch {
	case t.begun == 0:
		if t.placement = t.router.Known(); t.placement.Epoch == 0 {
			t.placement, t.err = t.router.refresh(ctx)
		}
	case !outdated(t.err):
		return false
	case t.begun == maxRestarts:
		t.err = fmt.Errorf("topic %s: refused %d times during one operation: %w", t.router.topic.Name(), maxRestarts, t.err)
		return false
	default:
		t.placement, t.err = t.router.renew(ctx, t.err)
	}
	t.begun++
	return t.err == nil
}

// outdated reports whether an operation must start over, because its placement or its
// deadline was outdated.
func outdated(err error) bool {
	var moved *shard.MovedError
	return errors.As(err, &moved) || errors.Is(err, shard.ErrLate)
}

// renew reads what was outdated in a refused operation: the placement or the time. If
// Redis has lost a placement that a shard has seen, the operation continues under that
// one; the scanners restore it in Redis.
func (r *Router) renew(ctx context.Context, refusal error) (shard.Placement, error) {
	r.scripts.ForgetClock()
	p, err := r.refresh(ctx)
	var moved *shard.MovedError
	if err != nil || !errors.As(refusal, &moved) || p.Epoch > moved.Placement.Epoch || p == moved.Placement {
		return p, err
	}
	p, err = r.topic.Seen(ctx, p, moved.Placement)
	if err == nil {
		r.Assume(p)
	}
	return p, err
}

// show fences the shards that aren't known to have seen p, in one round trip. It returns
// the error of each shard that it couldn't fence.
func (r *Router) show(ctx context.Context, p shard.Placement, shards []int) map[int]error {
	unseen := r.unseen(p, shards)
	if len(unseen) == 0 {
		return nil
	}
	failed := map[int]error{}
	for i, fenced := range r.topic.FenceAll(ctx, p, unseen) {
		if at := unseen[i].Shard; fenced.Err != nil {
			failed[at] = fenced.Err
		} else {
			r.saw(at, p)
		}
	}
	return failed
}

func (r *Router) unseen(p shard.Placement, shards []int) (unseen []shard.Names) {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	asked := map[int]bool{}
	for _, s := range shards {
		if !asked[s] && r.known.fenced[s] != p {
			unseen = append(unseen, shard.Names{Shard: s})
		}
		asked[s] = true
	}
	return unseen
}

func (r *Router) saw(shard int, p shard.Placement) {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	r.known.fenced[shard] = p
}

// closeOld removes the copies of moving tasks from their old shards, in one round trip.
// It is the last step of an operation on such tasks. It returns an error or nil for each
// of olds.
//
// A shard that has seen a newer placement has no copies, because the move under this one
// is complete. If a shard answers ErrLate, closeOld sends the same again: the rest of the
// operation is stored already.
func (r *Router) closeOld(ctx context.Context, p shard.Placement, olds ...shard.Names) []error {
	errs := make([]error, len(olds))
	todo := make([]int, len(olds))
	for i := range olds {
		todo[i] = i
	}
	for range maxRestarts {
		todo = r.closeOldOnce(ctx, p, olds, todo, errs)
		if len(todo) == 0 {
			break
		}
		r.scripts.ForgetClock()
	}
	for _, i := range todo {
		errs[i] = fmt.Errorf("topic %s: shard %d was reached late %d times during one operation: %w", r.topic.Name(),
			olds[i].Shard, maxRestarts, shard.ErrLate)
	}
	return errs
}

// closeOldOnce makes one try for the indexes in todo, and returns the indexes that were
// late.
func (r *Router) closeOldOnce(ctx context.Context, p shard.Placement, olds []shard.Names, todo []int,
	errs []error) (late []int) {
	deadline, err := r.scripts.Deadline(ctx)
	if err != nil {
		for _, i := range todo {
			errs[i] = err
		}
		return nil
	}
	batches := make([]shard.Deletion, len(todo))
	for n, i := range todo {
		batches[n].Names = olds[i]
	}
	for n, err := range r.topic.Delete(ctx, p, deadline, batches) {
		var moved *shard.MovedError
		switch i := todo[n]; {
		case errors.Is(err, shard.ErrLate):
			late = append(late, i)
		case err != nil && !errors.As(err, &moved):
			errs[i] = err
		}
	}
	return late
}
