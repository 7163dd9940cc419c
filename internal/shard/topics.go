package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/slip"
	"github.com/duefleet/duefleet/task"
)

// Gone is the placement that a removal leaves behind.
func (p Placement) Gone() Placement {
	if p.Phase == Removed { // an earlier call got no further
		return p
	}
	return Placement{p.Epoch + 1, p.Shards, p.Previous, Removed}
}

// Remove ends a topic: its shards refuse every placement known so far, so that
// a producer that has not heard is told that the topic is unknown.
func (t *Topic) Remove(ctx context.Context, from Placement) (bool, error) {
	gone := from.Gone()
	if gone != from {
		if done, err := t.change(ctx, from, gone); err != nil || !done {
			return false, err
		}
	}
	return true, t.fenceAll(ctx, gone, max(gone.Shards, gone.Previous))
}

// Clear removes what the shards of a removed topic hold, and returns how many
// tasks went. Unless tasks may be purged, a shard that holds some is left as it is,
// and left is how many those are. A *MovedError says that the topic was made anew:
// what its shards hold then is that one's.
func (t *Topic) Clear(ctx context.Context, gone Placement, purge bool) (went, left int64, err error) {
	calls := make([]call, max(gone.Shards, gone.Previous))
	for i := range calls {
		keys := []string{t.Shard(i).due(), t.Shard(i).tasks(), t.Shard(i).fence(), t.Shard(i).handled()}
		calls[i] = call{script: "clear", keys: keys, args: []any{gone.String(), oneIf(purge)}}
	}
	for i, cmd := range t.runAll(ctx, calls) {
		status, rest, err := answer(cmd)
		if err != nil {
			return went, left, fmt.Errorf("clear shard %d of topic %s: %w", i, t.name, err)
		}
		n, _ := rest[0].(int64)
		if status == "ok" {
			went += n
		} else {
			left += n
		}
	}
	return went, left, nil
}

// Topics lists the topics known, in order.
func (s *Store) Topics(ctx context.Context) ([]string, error) {
	names, err := s.rdb.SMembers(ctx, s.topicsKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// Known reports whether the topic is among the known ones: it was served, and no removal
// of it has come to its end since.
func (t *Topic) Known(ctx context.Context) (bool, error) {
	names, err := t.rdb.SMembers(ctx, t.topicsKey()).Result()
	if err != nil {
		return false, fmt.Errorf("list topics: %w", err)
	}
	return slices.Contains(names, t.name), nil
}

// meant adds to a task.ErrUnknownTopic the topic whose name was likely meant, if there is one
// and the user may list the topics. Other errors it returns as they are.
func (t *Topic) meant(ctx context.Context, err error) error {
	if !errors.Is(err, task.ErrUnknownTopic) {
		return err
	}
	names, unlisted := t.Topics(ctx)
	if like := slip.Of(t.name, names); unlisted == nil && like != "" {
		return fmt.Errorf("%w; did you mean topic %s?", err, like)
	}
	return err
}

// Forget takes a topic that was removed, or never had a placement, off the list of
// known ones, with its document and the record of its source; one that was made anew stays.
func (t *Topic) Forget(ctx context.Context, gone Placement) error {
	if err := t.rdb.SRem(ctx, t.topicsKey(), t.name).Err(); err != nil {
		return fmt.Errorf("forget topic %s: %w", t.name, err)
	}
	was := ""
	if gone.Epoch > 0 {
		was = gone.String()
	}
	c := call{script: "forget", keys: []string{t.placementKey(), t.documentKey(), t.rateKey(), t.sourceKey()}, args: []any{was}}
	forgotten, err := t.run(ctx, c).Int()
	if err != nil {
		return fmt.Errorf("forget topic %s: %w", t.name, err)
	}
	if forgotten == 0 {
		return t.list(ctx)
	}
	return nil
}

// list puts the topic among the known ones.
func (t *Topic) list(ctx context.Context) error {
	return wrapIf(redisError(t.rdb.SAdd(ctx, t.topicsKey(), t.name).Err()), "list topic %s", t.name)
}

// SaveDocument keeps the last good document of the topic, so that a fleet can
// start without the place the document came from.
func (t *Topic) SaveDocument(ctx context.Context, doc []byte) error {
	if err := t.rdb.Set(ctx, t.documentKey(), doc, 0).Err(); err != nil {
		return fmt.Errorf("save document of topic %s: %w", t.name, redisError(err))
	}
	return nil
}

// Document returns the last good document of the topic, nil if there is none.
func (t *Topic) Document(ctx context.Context) ([]byte, error) {
	doc, err := t.rdb.Get(ctx, t.documentKey()).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read document of topic %s: %w", t.name, err)
	}
	return doc, nil
}
