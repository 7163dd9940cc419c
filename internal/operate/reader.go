package operate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// seldomAge is how long a search through all 4096 possible shards of a topic stays valid.
// Its findings last for minutes, and scanners search too.
const seldomAge = time.Minute

// shardsAtOnce is how many shards of a topic a Reader counts per read, once it has
// counted all of them.
const shardsAtOnce = 512

// Reader reads a status repeatedly. It asks all 4096 possible shards of a topic only once
// a minute and after a change of the placement.
//
// For a topic with more than 512 shards, each read after the first counts 512 shards in
// turn; the other counts are older. A Reader must not be used by several goroutines at
// once.
type Reader struct {
	store  *shard.Store
	topic  string
	looks  map[string]look
	counts map[string]*counts
}

// counts holds the counts of a topic's shards; all of them could be read.
type counts struct {
	shards []shard.Stats
	next   int // the shard to be counted next
}

// look is the result of a search of a topic's shards under a placement.
type look struct {
	placement shard.Placement
	at        time.Time
	forked    error // from shard.Topic.Forked
	orphans   shard.Orphans
	unread    error // names the shards that the search couldn't read
}

// NewReader returns a Reader for one topic, or for all known topics if topic is "".
func NewReader(store *shard.Store, topic string) *Reader {
	return &Reader{store: store, topic: topic, looks: map[string]look{}, counts: map[string]*counts{}}
}

// stats counts the first n shards of a topic. It may count only some and use older counts
// for the others.
func (r *Reader) stats(ctx context.Context, t *shard.Topic, n int) ([]shard.Stats, error) {
	known := r.counts[t.Name()]
	if known != nil && len(known.shards) == n && n > shardsAtOnce {
		if err := known.renew(ctx, t); err == nil {
			return slices.Clone(known.shards), nil
		}
	}
	delete(r.counts, t.Name())
	all, err := t.Stats(ctx, n)
	if err == nil {
		r.counts[t.Name()] = &counts{shards: slices.Clone(all)}
	}
	return all, err
}

// renew counts the shards whose turn it is.
func (c *counts) renew(ctx context.Context, t *shard.Topic) error {
	turn := make([]int, shardsAtOnce)
	for i := range turn {
		turn[i] = (c.next + i) % len(c.shards)
	}
	now, err := t.StatsOf(ctx, turn)
	if err != nil {
		return err
	}
	for _, v := range now {
		c.shards[v.Shard] = v
	}
	c.next = (c.next + shardsAtOnce) % len(c.shards)
	return nil
}

// seldom searches for a fork and for orphaned tasks, or returns the last result. It
// doesn't keep the result of a search that failed.
func (r *Reader) seldom(ctx context.Context, t *shard.Topic, p shard.Placement) look {
	l, known := r.looks[t.Name()]
	if known && l.placement == p && time.Since(l.at) < seldomAge {
		return l
	}
	l = look{placement: p, at: time.Now(), forked: t.Forked(ctx, p)}
	l.orphans, l.unread = t.Orphans(ctx, p)
	if l.unread == nil && (l.forked == nil || errors.Is(l.forked, task.ErrForked)) {
		r.looks[t.Name()] = l
	} else {
		delete(r.looks, t.Name())
	}
	return l
}
