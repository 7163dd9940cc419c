package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

// Orphans counts orphaned tasks. They lie in shards that a placement doesn't poll, so
// nobody would deliver them. Redis lost a placement, and what the shards had seen of it
// too.
type Orphans struct {
	Tasks int64
	// Within is the smallest number of shards that holds all of them.
	Within int
}

// existAtOnce bounds the keys of one EXISTS, so that Redis serves others in between.
const existAtOnce = 512

// Orphans counts the tasks in shards that p does not poll, up to MaxShards. One server takes
// eight commands if there are none. A Redis Cluster takes a command for each shard. Orphans
// leaves out shards that can't be read; an *UnreadableError names them.
func (t *Topic) Orphans(ctx context.Context, p Placement) (Orphans, error) {
	if t.unused(ctx, p.Scanned()) {
		return Orphans{}, nil
	}
	pipe := t.store.Client(ctx).Pipeline()
	counts := map[int]*redis.IntCmd{}
	for at := p.Scanned(); at < MaxShards; at++ {
		counts[at] = pipe.ZCard(ctx, t.Shard(at).due())
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	var out Orphans
	failed := map[int]error{}
	for at, count := range counts {
		n, err := count.Result()
		if err != nil {
			failed[at] = fmt.Errorf("count orphaned tasks in shard %d of topic %s: %w", at, t.name, err)
		} else if n > 0 {
			out.Tasks += n
			out.Within = max(out.Within, at+1)
		}
	}
	return out, t.LeftOut(len(counts), failed)
}

// unused reports whether the topic is known to have no shard from a number on. It isn't
// known in a Redis Cluster, where one command can't ask for shards of several slots. It
// isn't known either without the right to ask.
func (t *Topic) unused(ctx context.Context, from int) bool {
	if t.store.Clustered() {
		return false
	}
	keys := make([]string, 0, MaxShards)
	for at := from; at < MaxShards; at++ {
		keys = append(keys, t.Shard(at).due())
	}
	pipe := t.store.Client(ctx).Pipeline()
	var counts []*redis.IntCmd
	for some := range slices.Chunk(keys, existAtOnce) {
		counts = append(counts, pipe.Exists(ctx, some...))
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	return !slices.ContainsFunc(counts, func(c *redis.IntCmd) bool { return c.Err() != nil || c.Val() > 0 })
}

// Gather begins a change from a stable placement to the same shard count, which moves
// orphaned tasks to their shards. It reports whether it did, as Begin does. Tasks in
// their place are not touched.
func (t *Topic) Gather(ctx context.Context, from Placement, orphans Orphans) (bool, error) {
	if from.Phase != Stable || orphans.Within <= from.Shards {
		return false, nil
	}
	if restored, err := t.restoreSeen(ctx, from, orphans.Within); err != nil || restored {
		return false, err
	}
	return t.change(ctx, from, Placement{from.Epoch + 1, from.Shards, orphans.Within, Migrating})
}

// Restore puts back a placement that a shard's fence has seen and the placement key has
// lost. A failover to a replica that lagged behind may cause that. It returns
// task.ErrForked if the key has another placement of the same epoch. Then each placement
// has tasks where the other would not look for them.
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

// Seen returns the placement to go on under, if a shard has seen another one than p, which
// is in force and no newer. It returns task.ErrForked if both have the same epoch, and
// task.ErrUnknownTopic if the topic was removed.
func (t *Topic) Seen(ctx context.Context, p, seen Placement) (Placement, error) {
	switch {
	case p.Epoch == seen.Epoch:
		return p, t.forked(p, seen)
	case seen.Phase == Removed:
		return p, t.store.registry.Suggest(ctx, t.name, unknownTopic(t.name))
	}
	return seen, nil
}

// Forked returns task.ErrForked if a shard that p polls has seen another placement of the
// same epoch. That shard refuses the callers of p and can't be found clean. Otherwise an
// *UnreadableError names the shards that can't be read.
func (t *Topic) Forked(ctx context.Context, p Placement) error {
	return t.store.Forked(ctx, []Placed{{t, p}})[0]
}

// Placed is a topic and its placement.
type Placed struct {
	Topic     *Topic
	Placement Placement
}

// Forked is Topic.Forked for many topics, in pipelines. The errors are in the order of the topics.
func (s *Store) Forked(ctx context.Context, topics []Placed) []error {
	errs := make([]error, 0, len(topics))
	for len(topics) > 0 {
		var keys []string
		n := 0 // topics whose fences are read together
		for ; n < len(topics) && len(keys) < MaxShards; n++ {
			keys = append(keys, topics[n].Topic.fences(topics[n].Placement.Scanned())...)
		}
		answers := s.readFences(ctx, keys)
		for _, p := range topics[:n] {
			shards := p.Placement.Scanned()
			errs = append(errs, p.Topic.forkedFrom(p.Placement, answers[:shards]))
			answers = answers[shards:]
		}
		topics = topics[n:]
	}
	return errs
}

func (t *Topic) forkedFrom(p Placement, fences []*redis.StringCmd) error {
	seen, err := t.seenBy(fences)
	for _, s := range seen {
		if s.Epoch == p.Epoch && s != p {
			return t.forked(p, s)
		}
	}
	return err
}

// restoreSeen puts back the newest placement that one of the first n shards has seen, if
// it is newer than p. It reports whether there was one. A change that began from p would
// reuse its epoch.
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

// seen returns the placements that the fences of the first n shards have seen. Shards
// that have seen none are left out. An *UnreadableError names the shards that can't be
// read.
func (t *Topic) seen(ctx context.Context, n int) ([]Placement, error) {
	return t.seenBy(t.store.readFences(ctx, t.fences(n)))
}

// fences returns the keys of the fences of the first n shards.
func (t *Topic) fences(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = t.Shard(i).fence()
	}
	return keys
}

func (s *Store) readFences(ctx context.Context, keys []string) []*redis.StringCmd {
	return pipelined(ctx, s, keys, func(pipe redis.Pipeliner, key string) *redis.StringCmd {
		return pipe.HGet(ctx, key, "placement")
	})
}

// seenBy is seen, of fences that were read.
func (t *Topic) seenBy(fences []*redis.StringCmd) ([]Placement, error) {
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
	return all, t.LeftOut(len(fences), failed)
}
