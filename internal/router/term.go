package router

import (
	"context"

	"github.com/duefleet/duefleet/internal/shard"
)

// BeginTerm begins a new term of the topic's intake, and returns a router whose Schedule,
// CancelMany and Reschedule carry it. Once a later term has begun they do nothing, and
// their error is shard.ErrSuperseded. The caller must have read the latest term before it got the
// queue of the topic's intake. If another one began since, BeginTerm's error is shard.ErrStale. A
// failover may have lost the other one, but the shards know it. Then the error is theirs.
func (r *Router) BeginTerm(ctx context.Context, latest shard.Term) (*Router, error) {
	term, p, err := r.topic.BeginTerm(ctx, latest)
	if err != nil {
		r.scripts.Relearn(ctx)
		return nil, err
	}
	of := newRouter(r.topic)
	of.term, of.latest = term, latest
	of.Assume(p)
	return of, nil
}

// raise shows the router's term to all shards, and returns the placement that has them. A
// shard that a later placement added hasn't seen the term, nor has one that lost it in a
// failover. The term is checked after the placement was read: if a later term began before
// that, its session may not know that the shard exists.
func (r *Router) raise(ctx context.Context) (shard.Placement, error) {
	p, err := r.topic.PlacementIn(ctx, r.term)
	if err != nil {
		return p, err
	}
	if known := r.Known(); known.Epoch > p.Epoch { // Redis has lost the placement that shards have seen
		p = known
	}
	r.Assume(p)
	return p, r.topic.RaiseTerm(ctx, r.term, r.latest, p)
}
