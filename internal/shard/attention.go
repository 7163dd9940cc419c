package shard

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Attention is when a shard needs attention next.
type Attention struct {
	// Now is Redis's clock at the look, to the microsecond.
	Now time.Time
	// Next is when a task there is due, or may be claimed again. It may lie in the past.
	// Zero: not before a task is put there.
	Next time.Time
	// Err is why the shard could not be looked at.
	Err error
}

// Attention looks at shards of one node in one round trip and leases nothing. The results are in
// the order of the shards.
func (t *Topic) Attention(ctx context.Context, shards ...int) []Attention {
	l := t.look(shards)
	if l.answers = t.store.scripts.RunAll(ctx, l.calls); l.refused() {
		l = t.lookEach(shards)
		l.answers = t.store.scripts.RunAll(ctx, l.calls)
	}
	return l.results()
}

// look is a look at shards of one node, as calls and their answers.
type look struct {
	topic   *Topic
	shards  []int
	calls   []luascript.Call
	answers []luascript.Reply
}

// mostLooks is how many shards a call looks at. Redis serves nobody else meanwhile.
const mostLooks = 64

// look returns a look at many shards with each call, unless Redis may be a cluster, where the
// shards' keys lie in different slots.
func (t *Topic) look(shards []int) look {
	if _, single := t.store.server.Known().(*redis.Client); single {
		return t.lookAt(shards, mostLooks)
	}
	return t.lookEach(shards)
}

// lookEach returns a look with a call for each shard.
func (t *Topic) lookEach(shards []int) look { return t.lookAt(shards, 1) }

func (t *Topic) lookAt(shards []int, together int) look {
	l := look{topic: t, shards: shards}
	for some := range slices.Chunk(shards, together) {
		c := luascript.Call{Script: "attention", Keys: make([]string, len(some))}
		for i, at := range some {
			c.Keys[i] = t.Shard(at).due()
		}
		l.calls = append(l.calls, c)
	}
	return l
}

// refused reports whether Redis refused a look at several shards. Perhaps it serves the others.
func (l *look) refused() bool {
	for i, answer := range l.answers {
		if len(l.calls[i].Keys) > 1 && Definite(answer.Err()) {
			return true
		}
	}
	return false
}

func (l *look) results() []Attention {
	all := make([]Attention, 0, len(l.shards))
	for i, answer := range l.answers {
		reply := answer.Values()
		now := reply.Int()
		for range l.calls[i].Keys {
			next := reply.Int()
			if err := reply.Err(); err != nil {
				all = append(all, Attention{Err: fmt.Errorf("look at shard %d of topic %s: %w", l.shards[len(all)],
					l.topic.name, err)})
				continue
			}
			a := Attention{Now: time.UnixMicro(now)}
			if next >= 0 {
				a.Next = time.UnixMilli(next)
			}
			all = append(all, a)
		}
	}
	return all
}

// Look is Topic.Attention for shards of one node, and passes its results to done.
func (c *Convoy) Look(t *Topic, node string, shards []int, done func([]Attention)) {
	l := t.look(shards)
	c.scripts.Add(node, l.calls, func(replies []luascript.Reply) {
		if l.answers = replies; !l.refused() {
			done(l.results())
			return
		}
		each := t.lookEach(shards)
		c.scripts.Add(node, each.calls, func(replies []luascript.Reply) {
			each.answers = replies
			done(each.results())
		})
	})
}
