package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/didyoumean"
	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
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

// Topics returns the known topics, sorted.
func (s *Store) Topics(ctx context.Context) ([]string, error) {
	names, err := s.Client(ctx).SMembers(ctx, s.topicsKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// Known reports whether the topic is in the list of known topics: it was served once, and
// no removal has completed since.
func (t *Topic) Known(ctx context.Context) (bool, error) {
	names, err := t.store.Topics(ctx)
	return slices.Contains(names, t.name), err
}

// Meant adds a suggestion to a task.ErrUnknownTopic: the known topic with a similar name,
// if there is one and the user may list the topics. It returns other errors unchanged.
func (t *Topic) Meant(ctx context.Context, err error) error {
	if !errors.Is(err, task.ErrUnknownTopic) {
		return err
	}
	names, unlisted := t.store.Topics(ctx)
	if like := didyoumean.Of(t.name, names); unlisted == nil && like != "" {
		return fmt.Errorf("%w; did you mean topic %s?", err, like)
	}
	return err
}

// Forget removes a topic from the list of known topics, with its document and the record
// of its source. The topic must have been removed, or never have had a placement. A topic
// that was created again stays.
func (t *Topic) Forget(ctx context.Context, gone Placement) error {
	if err := t.store.Client(ctx).SRem(ctx, t.store.topicsKey(), t.name).Err(); err != nil {
		return fmt.Errorf("forget topic %s: %w", t.name, err)
	}
	was := ""
	if gone.Epoch > 0 {
		was = gone.String()
	}
	c := luascript.Call{Script: "forget", Keys: []string{t.placementKey(), t.documentKey(), t.rateKey(), t.sourceKey()},
		Args: []any{was}}
	forgotten, err := t.store.scripts.Run(ctx, c).Int()
	if err != nil {
		return fmt.Errorf("forget topic %s: %w", t.name, err)
	}
	if forgotten == 0 {
		return t.list(ctx)
	}
	return nil
}

// list adds the topic to the known ones.
func (t *Topic) list(ctx context.Context) error {
	err := t.store.Client(ctx).SAdd(ctx, t.store.topicsKey(), t.name).Err()
	return wrapIf(luascript.Explain(err), "list topic %s", t.name)
}

// SaveDocument stores the last good document of the topic, so that a fleet can start
// while the source of the document is away.
func (t *Topic) SaveDocument(ctx context.Context, doc []byte) error {
	if err := t.store.Client(ctx).Set(ctx, t.documentKey(), doc, 0).Err(); err != nil {
		return fmt.Errorf("save document of topic %s: %w", t.name, luascript.Explain(err))
	}
	return nil
}

// Document returns the last good document of the topic, nil if there is none.
func (t *Topic) Document(ctx context.Context) ([]byte, error) {
	doc, err := t.store.Client(ctx).Get(ctx, t.documentKey()).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read document of topic %s: %w", t.name, err)
	}
	return doc, nil
}
