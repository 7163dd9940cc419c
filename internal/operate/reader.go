package operate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// seldomAge is how old a look may be for which each of a topic's 4096 possible shards is
// asked. What it finds lasts for minutes, and scanners look for it themselves.
const seldomAge = time.Minute

// shardsAtOnce is how many shards of a topic a Reader counts when it has counted them all
// before.
const shardsAtOnce = 512

// Reader reads a status again and again. What every possible shard has to be asked for it
// asks for once a minute, and when a placement has changed. Of a topic with more than 512
// shards it counts that many in turn after the first time, so that the counts of the others
// are older. It is for one goroutine.
type Reader struct {
	store  *shard.Store
	topic  string
	looks  map[string]look
	counts map[string]*counts
}

// counts are those of a topic's shards, all of which could be read.
type counts struct {
	shards []shard.Stats
	next   int // the shard to be counted next
}

// look is what was found of a topic under a placement.
type look struct {
	placement shard.Placement
	at        time.Time
	forked    error // as of shard.Topic.Forked
	strays    shard.Strays
	unread    error // of strays
}

// NewReader reads the status of one topic, or of all that are known if topic is "".
func NewReader(store *shard.Store, topic string) *Reader {
	return &Reader{store: store, topic: topic, looks: map[string]look{}, counts: map[string]*counts{}}
}

// stats counts the first n shards of a topic, or some of them and remembers the others.
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

// seldom looks for a fork and for strays, or returns what the last look found. A look that
// failed is not kept.
func (r *Reader) seldom(ctx context.Context, t *shard.Topic, p shard.Placement) look {
	l, known := r.looks[t.Name()]
	if known && l.placement == p && time.Since(l.at) < seldomAge {
		return l
	}
	l = look{placement: p, at: time.Now(), forked: t.Forked(ctx, p)}
	l.strays, l.unread = t.Strays(ctx, p)
	if l.unread == nil && (l.forked == nil || errors.Is(l.forked, task.ErrForked)) {
		r.looks[t.Name()] = l
	} else {
		delete(r.looks, t.Name())
	}
	return l
}
