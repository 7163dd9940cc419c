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

// known is what a router knows of its topic's placement, as it last heard of it. It
// may be old; shards that have seen a newer one refuse it.
type known struct {
	mu        sync.Mutex
	placement Placement         // Epoch 0: none read yet
	fenced    map[int]Placement // by shard: what its fence is known to have seen
}

// Known is the placement last heard of; its Epoch is 0 if there is none.
func (r *Router) Known() Placement {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	return r.known.placement
}

// Assume makes p the placement known, as a client that has not heard since has it.
func (r *Router) Assume(p Placement) {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	r.known.placement = p
}

// placement returns the one known, reading it if there is none.
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

// show fences shards, in one round trip, but for those known to have seen the
// placement. It returns an error for each shard that could not be fenced.
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

// closeOld removes the copies that tasks left at their old shards, the closing
// step of an operation on tasks that are moving, in one round trip. It
// answers an error or nil for each of the shards. One that has seen a newer
// placement has no copies: the movers of this one were done with it. One that was
// reached late is sent the same again: what it closes is stored already.
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
		errs[i] = fmt.Errorf("topic %s: shard %d was reached late %d times during one operation: %w", r.name, olds[i].Shard, maxRestarts, ErrLate)
	}
	return errs
}

// closeOldOnce tries once for those of olds that are to do, and returns the late ones.
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

// retry runs an operation under the placement known, and again from its
// beginning under a newer one whenever a shard says that there is one.
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

// outdated says that an operation was refused for what its caller knows, and is
// to start over.
func (r *Router) outdated(err error) bool {
	var moved *MovedError
	return errors.As(err, &moved) || errors.Is(err, ErrLate)
}

// renew learns what an operation was refused for: the new placement, or the
// time. Where Redis has lost a placement that a shard has seen, the operation goes on
// under that one; to put it back is the scanners' work.
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
