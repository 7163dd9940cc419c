package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

// Strays are tasks in shards that a placement does not attend, where nobody would
// deliver them: Redis lost a placement, and what the shards had seen of it too.
type Strays struct {
	Tasks int64
	// Within is the least number of shards that holds all of them.
	Within int
}

// Strays counts the tasks in shards that p does not attend, all up to MaxShards: a
// command for each. Those that can't be read are left out, and named by an
// *UnreadableError.
func (t *Topic) Strays(ctx context.Context, p Placement) (Strays, error) {
	pipe := t.rdb.Pipeline()
	counts := map[int]*redis.IntCmd{}
	for at := p.Scanned(); at < MaxShards; at++ {
		counts[at] = pipe.ZCard(ctx, t.Shard(at).due())
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	var out Strays
	failed := map[int]error{}
	for at, count := range counts {
		n, err := count.Result()
		if err != nil {
			failed[at] = fmt.Errorf("look for tasks outside the shards of topic %s: shard %d: %w", t.name, at, err)
		} else if n > 0 {
			out.Tasks += n
			out.Within = max(out.Within, at+1)
		}
	}
	return out, t.LeftOut(len(counts), failed)
}

// Gather begins a change from a stable placement to the same shard count that brings
// strays home, and reports whether it did, as Begin does. What lies in its place is
// not touched.
func (t *Topic) Gather(ctx context.Context, from Placement, strays Strays) (bool, error) {
	if from.Phase != Stable || strays.Within <= from.Shards {
		return false, nil
	}
	if restored, err := t.restoreSeen(ctx, from, strays.Within); err != nil || restored {
		return false, err
	}
	return t.change(ctx, from, Placement{from.Epoch + 1, from.Shards, strays.Within, Migrating})
}

// Restore puts back a placement that a shard's fence has seen and the placement
// key has not, as after a failover to a replica that lagged behind. Where the key
// has another one of the same epoch it is task.ErrForked: each has tasks where the
// other would not look for them.
func (t *Topic) Restore(ctx context.Context, seen Placement) error {
	p, err := t.Placement(ctx)
	if err != nil && !errors.Is(err, task.ErrUnknownTopic) {
		return err
	}
	if p.Epoch > seen.Epoch || p == seen {
		return nil
	}
	if p.Epoch == seen.Epoch {
		return t.forked(p, seen)
	}
	_, err = t.change(ctx, p, seen)
	return err
}

func (t *Topic) forked(p, seen Placement) error {
	return fmt.Errorf("topic %s: %w: %q is in force, and a shard has seen %q", t.name, task.ErrForked, p, seen)
}

// Forked is task.ErrForked if one of the attended shards has seen another placement
// of the same epoch. Its callers are refused, and it can't be found clean. Else shards
// that can't be read are named by an *UnreadableError.
func (t *Topic) Forked(ctx context.Context, p Placement) error {
	seen, err := t.seen(ctx, p.Scanned())
	for _, s := range seen {
		if s.Epoch == p.Epoch && s != p {
			return t.forked(p, s)
		}
	}
	return err
}

// restoreSeen puts back the newest placement that one of the first n shards has
// seen, if it is newer than p, and reports whether there was one. A change that
// began from p would have that one's epoch.
func (t *Topic) restoreSeen(ctx context.Context, p Placement, n int) (bool, error) {
	seen, err := t.seen(ctx, n)
	if err != nil {
		return false, err
	}
	newest := p
	for _, s := range seen {
		if s.Epoch > newest.Epoch {
			newest = s
		}
	}
	if newest == p {
		return false, nil
	}
	return true, t.Restore(ctx, newest)
}

// seen are the placements that the fences of the first n shards have seen; shards
// that have seen none are left out, and those that can't be read are named by an
// *UnreadableError.
func (t *Topic) seen(ctx context.Context, n int) ([]Placement, error) {
	pipe := t.rdb.Pipeline()
	fences := make([]*redis.StringCmd, n)
	for i := range fences {
		fences[i] = pipe.HGet(ctx, t.Shard(i).fence(), "placement")
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	var all []Placement
	failed := map[int]error{}
	for i, g := range fences {
		text, err := g.Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		var p Placement
		if err == nil {
			p, err = parsePlacement(text)
		}
		if err != nil {
			failed[i] = fmt.Errorf("read the fence of shard %d of topic %s: %w", i, t.name, err)
			continue
		}
		all = append(all, p)
	}
	return all, t.LeftOut(n, failed)
}
