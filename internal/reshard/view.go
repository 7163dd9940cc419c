package reshard

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
)

// view holds what this scanner knows about a topic's placement and its shards. It is safe
// for concurrent use.
type view struct {
	log     *slog.Logger
	metrics *Metrics
	placed  func(shards int)
	changed *wake.Broadcast // fires at each placement that is taken, and when a topic is made again

	mu        sync.Mutex
	placement shard.Placement
	// removed reports whether the topic was removed from Redis.
	removed bool
	// clean has a value for each shard: whether it is known to be clean under placement.
	clean []bool
	// shown is the placement that each shard was last shown.
	shown map[int]shard.Placement
}

// known returns the placement and whether the topic was removed. The epoch is 0 before a
// placement was read.
func (v *view) known() (p shard.Placement, removed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.placement, v.removed
}

// learnPlacement notes a placement that is newer than the known one. It reports whether p isn't
// the known one then.
func (v *view) learnPlacement(p shard.Placement) (differs bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p.Epoch > v.placement.Epoch {
		v.replaceKnown(p)
	}
	return p != v.placement || v.removed
}

// relearn takes the placement p, which was read from Redis when the view held known. If p
// is older than known, Redis lost the newer one, for example in a restore from a backup.
// The shards may have lost their fences too, so relearn forgets which were shown.
func (v *view) relearn(known, p shard.Placement) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case p.Epoch > v.placement.Epoch:
		v.replaceKnown(p)
	case v.placement != known:
	case p == known && v.removed: // it was made again
		v.removed = false
		v.changed.Fire()
	case p == known:
	default:
		v.log.WarnContext(context.Background(), "placement in redis differs from the known one",
			"known", known.String(), "placement", p.String())
		v.shown = map[int]shard.Placement{}
		v.replaceKnown(p)
	}
}

// replaceKnown replaces the known placement; v.mu is held.
func (v *view) replaceKnown(p shard.Placement) {
	v.placement, v.clean, v.removed = p, nil, false
	v.metrics.place(p)
	v.placed(p.Shards)
	if p.Phase == shard.Stable {
		v.metrics.progress(0, 0, 0)
		v.metrics.Orphans.Set(0)
	}
	v.changed.Fire()
}

// learnRemoved notes that Redis has no placement of the topic any more. It reports whether that
// is news.
func (v *view) learnRemoved() (news bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	news = !v.removed
	v.removed = true
	return news
}

// wereShown reports whether p was last shown to all of some shards.
func (v *view) wereShown(shards []int, p shard.Placement) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !slices.ContainsFunc(shards, func(at int) bool { return v.shown[at] != p })
}

func (v *view) show(at int, p shard.Placement) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shown[at] = p
}

// learnClean notes which shards are clean under p, unless another placement is known.
func (v *view) learnClean(p shard.Placement, clean []bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.placement == p {
		v.clean = clean
	}
}

func (v *view) isClean(p shard.Placement, at int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.placement == p && at < len(v.clean) && v.clean[at]
}

// unclean returns how many shards are not known to be clean under p.
func (v *view) unclean(p shard.Placement) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	unclean := p.Scanned()
	if v.placement == p {
		for _, clean := range v.clean {
			if clean {
				unclean--
			}
		}
	}
	return unclean
}
