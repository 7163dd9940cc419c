package shard

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
)

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
func (c *Convoy) Draw(ctx context.Context, t *Topic, n int, done func(first int64, p Placement, err error)) {
	node := t.store.nodeOf(ctx, t.ticketKey())
	c.scripts.Add(node, []luascript.Call{t.drawCall(n)}, func(replies []luascript.Reply) { done(t.drawn(n, replies[0])) })
}

// Look is Topic.Attention for shards of one node, and passes its results to done.
func (c *Convoy) Look(t *Topic, node string, shards []int, done func([]Attention)) {
	c.scripts.Add(node, t.looks(shards), func(replies []luascript.Reply) { done(t.looked(shards, replies)) })
}
