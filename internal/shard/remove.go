package shard

import (
	"cmp"
	"context"
	"fmt"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Gone returns the placement that follows p when the topic is removed.
func (p Placement) Gone() Placement {
	if p.Phase == Removed { // an earlier removal didn't complete
		return p
	}
	return Placement{p.Epoch + 1, p.Shards, p.Previous, Removed}
}

// Remove removes a topic: its shards refuse every earlier placement, so that a producer
// with such a placement gets task.ErrUnknownTopic. It returns false if the placement
// isn't from any more.
func (t *Topic) Remove(ctx context.Context, from Placement) (bool, error) {
	gone := from.Gone()
	if gone != from {
		if done, err := t.change(ctx, from, gone); err != nil || !done {
			return false, err
		}
	}
	return true, t.fenceAll(ctx, gone, max(gone.Shards, gone.Previous))
}

// Clear removes the contents of the shards of a removed topic, and its index of groups. went is the number of
// tasks removed. Without purge, Clear doesn't touch a shard that has tasks; left is their
// number. A *MovedError means that the topic was created again, so the shards belong to
// the new one.
func (t *Topic) Clear(ctx context.Context, gone Placement, purge bool) (went, left int64, err error) {
	most := max(gone.Shards, gone.Previous)
	indexed, err := t.indexedFrom(ctx, most)
	if err != nil {
		return 0, 0, err
	}
	calls := make([]luascript.Call, 0, most)
	for _, i := range append(upTo(most), indexed...) {
		keys := t.Shard(i).taskKeys(t.groupKey(i))
		calls = append(calls, luascript.Call{Script: "clear", Keys: keys, Args: []any{gone.String(), purge}})
	}
	for _, reply := range t.store.scripts.RunAll(ctx, calls) {
		status, rest, err := answer(reply)
		n := rest.Int()
		if err = cmp.Or(err, rest.Err()); err != nil {
			return went, left, fmt.Errorf("clear shards of topic %s: %w", t.name, err)
		}
		if status == "ok" {
			went += n
		} else {
			left += n
		}
	}
	return went, left, nil
}

// upTo returns the numbers below n.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// Forget removes a topic from the list of known topics, with its document and the record
// of its source. The topic must have been removed, or never have had a placement. A topic
// that was created again stays.
func (t *Topic) Forget(ctx context.Context, gone Placement) error {
	if err := t.store.registry.DropTopic(ctx, t.name); err != nil {
		return err
	}
	was := ""
	if gone.Epoch > 0 {
		was = gone.String()
	}
	keys := append([]string{t.placementKey()}, t.store.registry.TopicKeys(t.name)...)
	forgotten, err := t.store.scripts.Run(ctx, luascript.Call{Script: "forget", Keys: keys, Args: []any{was}}).Int()
	if err != nil {
		return fmt.Errorf("forget topic %s: %w", t.name, err)
	}
	if forgotten == 0 {
		return t.store.registry.AddTopic(ctx, t.name)
	}
	return nil
}
