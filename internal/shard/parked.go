package shard

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// Parked returns up to count parked tasks of a shard, without payloads, in the order of
// the bytes of their IDs. It skips the first offset tasks, but has to read them too.
func (s Shard) Parked(ctx context.Context, offset, count int64) ([]Record, error) {
	var all []Record
	cursor := s.ParkedCursor()
	for most := offset + count; int64(len(all)) < most; {
		page, err := cursor.Next(ctx, most-int64(len(all)))
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
	}
	return all[min(offset, int64(len(all))):], nil
}

// ParkedTask reads one parked task of a shard. there is false if the task isn't parked
// there.
func (s Shard) ParkedTask(ctx context.Context, id string) (r Record, there bool, err error) {
	if there, err = s.isParked(ctx, id); err != nil || !there {
		return r, false, err
	}
	text, err := s.topic.store.Client(ctx).HGet(ctx, s.tasks(), id).Result()
	if errors.Is(err, redis.Nil) { // if it isn't parked now, it was moved, replayed or removed
		if there, err = s.isParked(ctx, id); err != nil || !there {
			return r, false, err
		}
	}
	if err != nil {
		return r, false, fmt.Errorf("read parked task of shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	r, err = DecodeRecord(s.topic.name, id, text)
	if err != nil {
		r.Err, r.Reason = err, err.Error()
	}
	return r, true, nil
}

func (s Shard) isParked(ctx context.Context, id string) (bool, error) {
	score, err := s.topic.store.Client(ctx).ZScore(ctx, s.due(), id).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil && math.IsInf(score, 1), wrapIf(err, "read parked task of shard %d of topic %s", s.n, s.topic.name)
}

// ParkedCursor pages once through the tasks of a shard that are parked at its first call,
// in the order of the bytes of their IDs. Redis keeps tasks with the same score in this
// order. Meanwhile tasks may be parked and removed, also visited ones: the cursor still
// visits each task that stays, and none twice. It keeps one page in memory, without
// payloads.
type ParkedCursor struct {
	list *List
	end  *string // the last parked task at the first call
}

// ParkedCursor returns a cursor at the start of a shard's parked tasks.
func (s Shard) ParkedCursor() *ParkedCursor {
	l := s.List(SpanOf(task.Parked), "")
	l.part = partMeta
	return &ParkedCursor{list: l}
}

// Next returns up to count tasks that it hasn't returned before, or fewer if their
// records are large. No tasks means the end.
func (c *ParkedCursor) Next(ctx context.Context, count int64) ([]Record, error) {
	if c.end == nil {
		if err := c.setOut(ctx); err != nil || c.end == nil {
			return nil, err
		}
	}
	c.list.tasks = count
	tasks, err := c.list.Next(ctx)
	if err != nil {
		return nil, err
	}
	records := make([]Record, 0, len(tasks))
	for _, t := range tasks {
		if t.ID > *c.end {
			c.list.over = true
			break
		}
		records = append(records, t.Record)
	}
	return records, nil
}

// setOut sets c.end to the last parked task; it stays nil if none is parked.
func (c *ParkedCursor) setOut(ctx context.Context) error {
	s, inf := c.list.shard, scoreText(math.Inf(1))
	first := &redis.ZRangeBy{Min: inf, Max: inf, Count: 1}
	last, err := s.topic.store.Client(ctx).ZRevRangeByScore(ctx, s.due(), first).Result()
	if err != nil {
		return fmt.Errorf("list parked tasks of shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	if len(last) > 0 {
		c.end = &last[0]
	}
	return nil
}

// Replay makes parked tasks of a shard due now. It returns how many of ids were parked.
func (s Shard) Replay(ctx context.Context, ids ...string) (int, error) {
	keys := []string{s.due(), s.tasks(), s.Wake(), s.fence()}
	n, err := s.topic.store.scripts.Run(ctx, luascript.Call{Script: "replay", Keys: keys, Args: anys(ids)}).Int()
	return int(n), wrapIf(err, "replay in shard %d of topic %s", s.n, s.topic.name)
}

// PurgeParked removes parked tasks of a shard for good. It returns how many of ids were
// parked.
func (s Shard) PurgeParked(ctx context.Context, ids ...string) (int, error) {
	call := luascript.Call{Script: "purge", Keys: []string{s.due(), s.tasks(), s.fence()}, Args: anys(ids)}
	n, err := s.topic.store.scripts.Run(ctx, call).Int()
	return int(n), wrapIf(err, "purge in shard %d of topic %s", s.n, s.topic.name)
}
