package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// maxRestarts limits how often one operation starts over because the placement changed. A
// change of the shard count takes two steps, so the limit is far above what even many
// changes in a row need.
const maxRestarts = 100

// known is a router's last known placement of its topic. It may be outdated; a shard that
// has seen a newer one refuses it.
type known struct {
	mu        sync.Mutex
	placement Placement         // Epoch 0: none read yet
	fenced    map[int]Placement // by shard: a placement that its fence has seen
}

// Known returns the last known placement. Its Epoch is 0 if there is none.
func (r *Router) Known() Placement {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	return r.known.placement
}

// Assume sets the known placement to p, which may be an outdated one.
func (r *Router) Assume(p Placement) {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	r.known.placement = p
}

// placement returns the known placement. It reads it if there is none.
func (r *Router) placement(ctx context.Context) (Placement, error) {
	if p := r.Known(); p.Epoch > 0 {
		return p, nil
	}
	return r.refresh(ctx)
}

func (r *Router) refresh(ctx context.Context) (Placement, error) {
	p, err := r.Placement(ctx)
	if err != nil {
		r.Relearn(ctx)
		r.Assume(Placement{})
		return p, r.meant(ctx, err)
	}
	r.Assume(p)
	return p, nil
}

// show fences the shards that aren't known to have seen p, in one round trip. It returns
// the error of each shard that it couldn't fence.
func (r *Router) show(ctx context.Context, p Placement, shards ...int) map[int]error {
	unseen := r.unseen(p, shards)
	if len(unseen) == 0 {
		return nil
	}
	failed := map[int]error{}
	for i, fenced := range r.FenceAll(ctx, p, unseen) {
		if at := unseen[i].Shard; fenced.Err != nil {
			failed[at] = fenced.Err
		} else {
			r.saw(at, p)
		}
	}
	return failed
}

func (r *Router) unseen(p Placement, shards []int) (unseen []Names) {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	asked := map[int]bool{}
	for _, s := range shards {
		if !asked[s] && r.known.fenced[s] != p {
			unseen = append(unseen, Names{Shard: s})
		}
		asked[s] = true
	}
	return unseen
}

func (r *Router) saw(shard int, p Placement) {
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
func (r *Router) closeOld(ctx context.Context, p Placement, olds ...Names) []error {
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
		r.ForgetClock()
	}
	for _, i := range todo {
		errs[i] = fmt.Errorf("topic %s: shard %d was reached late %d times during one operation: %w", r.name, olds[i].Shard,
			maxRestarts, ErrLate)
	}
	return errs
}

// closeOldOnce makes one try for the indexes in todo, and returns the indexes that were
// late.
func (r *Router) closeOldOnce(ctx context.Context, p Placement, olds []Names, todo []int, errs []error) (late []int) {
	notAfter, err := r.NotAfter(ctx)
	if err != nil {
		for _, i := range todo {
			errs[i] = err
		}
		return nil
	}
	calls := make([]call, len(todo))
	for n, i := range todo {
		calls[n] = r.deletion(p, notAfter, false, olds[i])
	}
	for n, cmd := range r.runAll(ctx, calls) {
		i := todo[n]
		_, _, err := answer(cmd)
		var moved *MovedError
		switch {
		case errors.Is(err, ErrLate):
			late = append(late, i)
		case err != nil && !errors.As(err, &moved):
			errs[i] = r.Shard(olds[i].Shard).undeleted(err)
		}
	}
	return late
}

// retry runs an operation under the known placement. If a shard refuses it as outdated,
// retry runs the whole operation again, under the newer placement if there is one.
func (r *Router) retry(ctx context.Context, operation func(p Placement) error) error {
	p, err := r.placement(ctx)
	var refusal error
	for range maxRestarts {
		if err != nil {
			return err
		}
		refusal = operation(p)
		if !r.outdated(refusal) {
			return refusal
		}
		p, err = r.renew(ctx, refusal)
	}
	return fmt.Errorf("topic %s: refused %d times during one operation: %w", r.name, maxRestarts, refusal)
}

// outdated reports whether an operation must start over, because its placement or its
// deadline was outdated.
func (r *Router) outdated(err error) bool {
	var moved *MovedError
	return errors.As(err, &moved) || errors.Is(err, ErrLate)
}

// renew reads what was outdated in a refused operation: the placement or the time. If
// Redis has lost a placement that a shard has seen, the operation continues under that
// one; the scanners restore it in Redis.
func (r *Router) renew(ctx context.Context, refusal error) (Placement, error) {
	r.ForgetClock()
	p, err := r.refresh(ctx)
	var moved *MovedError
	if err != nil || !errors.As(refusal, &moved) || p.Epoch > moved.Placement.Epoch || p == moved.Placement {
		return p, err
	}
	switch seen := moved.Placement; {
	case p.Epoch == seen.Epoch:
		return p, r.forked(p, seen)
	case seen.Phase == Removed:
		return p, r.meant(ctx, unknownTopic(r.name))
	default:
		r.Assume(seen)
		return seen, nil
	}
}
