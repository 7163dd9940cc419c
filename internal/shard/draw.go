package shard

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Draw asks for the next N tickets of a topic, 1 to MaxShards. Instance is the scanner that polls
// their shards for Stay, 1 ms to an hour. If others poll shards of the topic, it may stay longer:
// until After the last of them leaves, but at most for MostStay. Both are 0 to an hour. The draw also
// looks at the shards if it may. Scanned is how many shards the fleet polls as known, 0 for no look.
type Draw struct {
	Instance string
	N        int
	Stay     time.Duration
	After    time.Duration
	MostStay time.Duration
	Scanned  int
}

// Tickets are N tickets that follow each other. Their shards are polled until an instant by
// Redis's clock.
type Tickets struct {
	First int64
	N     int
	Until time.Time
}

// Drawn is the answer to a draw.
type Drawn struct {
	First     int64 // the others follow it
	Placement Placement
	Now       time.Time // Redis's clock.
	Until     time.Time // by that clock: the scanner polls its shards until then.
	Heard     time.Time // when it showed Now, by this process's clock; set by a Convoy.
	Others    []Tickets // what other scanners drew, and still poll
	// Looked is when the tickets' shards need attention next, in their order. It is nil if the
	// draw looked at none, or if the fleet doesn't poll Draw.Scanned shards.
	Looked []Attention
}

// Draw takes tickets and reads the placement, with the errors of Topic.Placement. If the answer
// is lost nobody has these tickets, and their shards come again one round later.
func (t *Topic) Draw(ctx context.Context, d Draw) (Drawn, error) {
	call := t.drawCall(d)
	return t.drawn(d, len(call.Keys) > drawKeys, t.store.scripts.Run(ctx, call))
}

// drawKeys is how many keys a draw has that doesn't look.
const drawKeys = 3

func (t *Topic) drawCall(d Draw) luascript.Call {
	looks := 0
	if d.Scanned <= mostLooks && t.store.single() {
		looks = d.Scanned
	}
	return luascript.Call{Script: "draw", Keys: t.keysOfDraw(looks),
		Args: []any{d.N, d.Instance, max(d.Stay.Milliseconds(), 1), looks, d.After.Milliseconds(),
			d.MostStay.Milliseconds()}}
}

// keysOfDraw returns the keys of a draw that looks at some of the first shards. They are kept,
// because a topic draws in each tick.
func (t *Topic) keysOfDraw(looks int) []string {
	if kept := t.draws.Load(); kept != nil && len(*kept) == drawKeys+looks {
		return *kept
	}
	keys := []string{t.ticketKey(), t.placementKey(), t.drawnKey()} // drawKeys of them
	for at := range looks {
		keys = append(keys, t.Shard(at).due())
	}
	t.draws.Store(&keys)
	return keys
}

func (t *Topic) drawn(d Draw, looks bool, answer luascript.Reply) (all Drawn, err error) {
	reply := answer.Values()
	all.First = reply.Int() - int64(d.N) + 1
	text, there := reply.TextIf()
	all.Now, all.Until = time.UnixMicro(reply.Int()), time.UnixMilli(reply.Int())
	var looked []Attention
	if looks {
		looked = make([]Attention, d.N)
	}
	for i := range looked {
		looked[i] = seen(all.Now, reply.Int())
	}
	for reply.Left() > 0 {
		all.Others = append(all.Others, Tickets{reply.Int(), int(reply.Int()), time.UnixMilli(reply.Int())})
	}
	if err := reply.Err(); err != nil {
		return Drawn{}, err
	}
	if !there {
		err = redis.Nil
	}
	all.Placement, err = t.placementFrom(text, err)
	if all.Placement.Scanned() == d.Scanned {
		all.Looked = looked
	}
	return all, err
}

// Attention is when a shard needs attention next.
type Attention struct {
	// Now is Redis's clock at the look, to the microsecond. Heard is when it showed that, by this
	// process's clock; a Convoy sets it.
	Now, Heard time.Time
	// Next is when a task there is due, or may be claimed again. It may lie in the past.
	// Zero: not before a task is put there.
	Next time.Time
	// Err is why the shard could not be looked at.
	Err error
}

// seen returns what a look saw: next is of the script.
func seen(now time.Time, next int64) Attention {
	if next < 0 {
		return Attention{Now: now}
	}
	return Attention{Now: now, Next: time.UnixMilli(next)}
}

// single reports whether Redis is known to be no cluster, so that a call may have keys of several
// shards.
func (s *Store) single() bool {
	_, single := s.server.Known().(*redis.Client)
	return single
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
func (t *Topic) look(shards []int) *look {
	if t.store.single() {
		return t.lookAt(shards, mostLooks)
	}
	return t.lookEach(shards)
}

// lookEach returns a look with a call for each shard.
func (t *Topic) lookEach(shards []int) *look { return t.lookAt(shards, 1) }

func (t *Topic) lookAt(shards []int, together int) *look {
	l := &look{topic: t, shards: shards}
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
			all = append(all, seen(time.UnixMicro(now), next))
		}
	}
	return all
}

// Draw is Topic.Draw, and passes its results to done. If Redis refuses a draw that looks, perhaps
// it serves one that doesn't.
func (c *Convoy) Draw(ctx context.Context, t *Topic, d Draw, done func(Drawn, error)) {
	node, call := t.store.nodeOf(ctx, t.ticketKey()), t.drawCall(d)
	c.add(node, []luascript.Call{call}, func(replies []luascript.Reply, sent, heard time.Time) {
		looks := len(call.Keys) > drawKeys
		if looks && Definite(replies[0].Err()) {
			d.Scanned = 0
			c.Draw(ctx, t, d, done)
			return
		}
		drawn, err := t.drawn(d, looks, replies[0])
		if err == nil {
			drawn.Heard = c.Heard(node, drawn.Now, sent, heard)
		}
		done(drawn, err)
	})
}

// Look is Topic.Attention for shards of one node, and passes its results to done.
func (c *Convoy) Look(t *Topic, node string, shards []int, done func([]Attention)) {
	l := t.look(shards)
	c.look(node, l, func(found []Attention) {
		if l.refused() {
			c.look(node, t.lookEach(shards), done)
			return
		}
		done(found)
	})
}

// look sends a look and passes its results to done.
func (c *Convoy) look(node string, l *look, done func([]Attention)) {
	c.add(node, l.calls, func(replies []luascript.Reply, sent, heard time.Time) {
		l.answers = replies
		found := l.results()
		for i := range found {
			if found[i].Err == nil {
				found[i].Heard = c.Heard(node, found[i].Now, sent, heard)
			}
		}
		done(found)
	})
}
