package shard

import (
	"context"
	"fmt"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Names are tasks in one shard, by their IDs.
type Names struct {
	Shard int
	IDs   []string
}

// Fenced is the answer of a shard that was shown a placement.
type Fenced struct {
	// Records of the requested tasks, in order; nil for a task that isn't there. A record
	// that can't be read has only its Err set.
	Records []*Record
	// Cancelled is the time of the shard's last cancel, in ms; 0: none.
	Cancelled int64
	// Err is for the whole shard: a *MovedError, or Redis's.
	Err error
}

// Fence shows a shard a placement and reads tasks under it. A record that isn't there is
// nil; one that can't be read is an error.
func (s Shard) Fence(ctx context.Context, p Placement, ids ...string) ([]*Record, error) {
	fenced := s.topic.FenceAll(ctx, p, []Names{{s.n, ids}})[0]
	for _, r := range fenced.Records {
		if r != nil && r.Err != nil {
			return nil, r.Err
		}
	}
	return fenced.Records, fenced.Err
}

// FenceAll is Fence for several shards, in one round trip. A record that can't be read
// has its Err set.
func (t *Topic) FenceAll(ctx context.Context, p Placement, at []Names) []Fenced {
	calls := make([]luascript.Call, len(at))
	placement := p.String()
	for i, n := range at {
		s := t.Shard(n.Shard)
		calls[i] = luascript.Call{Script: "fence", Keys: []string{s.tasks(), s.fence(), s.handled()},
			Args: append([]any{placement}, anys(n.IDs)...), ReplicasKey: s.fence()}
	}
	results := make([]Fenced, len(at))
	for i, reply := range t.store.scripts.RunAll(ctx, calls) {
		var err error
		results[i], err = t.fenced(reply, at[i])
		results[i].Err = wrapIf(err, "fence shard %d of topic %s", at[i].Shard, t.name)
	}
	return results
}

func (t *Topic) fenced(reply luascript.Reply, n Names) (Fenced, error) {
	_, rest, err := answer(reply)
	if err != nil {
		return Fenced{}, err
	}
	f := Fenced{Cancelled: rest.Int(), Records: make([]*Record, len(n.IDs))}
	for i, id := range n.IDs {
		text, there := rest.TextIf()
		if !there {
			continue
		}
		r, err := DecodeRecord(t.name, id, text)
		if err != nil {
			r = Record{Err: fmt.Errorf("read task %q: %w", id, err)}
		}
		f.Records[i] = &r
	}
	return f, rest.Err()
}
