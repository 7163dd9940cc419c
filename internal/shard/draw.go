package shard

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Draw asks for the next N tickets of a topic, 1 to MaxShards. Instance is the scanner that polls
// their shards for Stay, 1 ms to an hour.
type Draw struct {
	Instance string
	N        int
	Stay     time.Duration
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
	Now       time.Time // Redis's clock
	Others    []Tickets // what other scanners drew, and still poll
}

// Draw takes tickets and reads the placement, with the errors of Topic.Placement. If the answer
// is lost nobody has these tickets, and their shards come again one round later.
func (t *Topic) Draw(ctx context.Context, d Draw) (Drawn, error) {
	return t.drawn(d, t.store.scripts.Run(ctx, t.drawCall(d)))
}

func (t *Topic) drawCall(d Draw) luascript.Call {
	return luascript.Call{Script: "draw", Keys: []string{t.ticketKey(), t.placementKey(), t.drawnKey()},
		Args: []any{d.N, d.Instance, max(d.Stay.Milliseconds(), 1)}}
}

func (t *Topic) drawn(d Draw, answer luascript.Reply) (all Drawn, err error) {
	reply := answer.Values()
	all.First = reply.Int() - int64(d.N) + 1
	text, there := reply.TextIf()
	all.Now = time.UnixMicro(reply.Int())
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
	return all, err
}

// convoyTimeout bounds a draw and a look, because another server may have taken over. Far from
// Redis a new connection may take a second.
const convoyTimeout = 4 * time.Second

// Convoy sends the draws and looks of many topics together; see luascript.Convoy. The functions
// that get the answers must return soon.
type Convoy struct {
	// Began is when the convoy was made. It gives ticks a common beginning.
	Began   time.Time
	scripts *luascript.Convoy
}

// NewConvoy returns a convoy for all topics of a store.
func (s *Store) NewConvoy() *Convoy { return &Convoy{time.Now(), s.scripts.NewConvoy(convoyTimeout)} }

// Wait waits until all answers were passed on.
func (c *Convoy) Wait() { c.scripts.Wait() }

// Draw is Topic.Draw, and passes its results to done.
func (c *Convoy) Draw(ctx context.Context, t *Topic, d Draw, done func(Drawn, error)) {
	node := t.store.nodeOf(ctx, t.ticketKey())
	c.scripts.Add(node, []luascript.Call{t.drawCall(d)}, func(replies []luascript.Reply) { done(t.drawn(d, replies[0])) })
}
