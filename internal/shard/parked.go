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

// Parked returns a List of the tasks of a shard that are parked at its first call. It leaves out
// payloads. The tasks come in the order of the bytes of their IDs, in which Redis keeps tasks with the
// same score. Meanwhile tasks may be parked and removed, also visited ones: the list still has each
// task that stays, and none twice.
func (s Shard) Parked() *List {
	l := s.List(SpanOf(task.Parked), "")
	l.part, l.bounded = partMeta, true
	return l
}

// lastParked returns the ID of a shard's last parked task; false: none is parked.
func (s Shard) lastParked(ctx context.Context) (id string, there bool, err error) {
	inf := scoreText(math.Inf(1))
	last, err := s.topic.store.Client(ctx).ZRevRangeByScore(ctx, s.due(), &redis.ZRangeBy{Min: inf, Max: inf, Count: 1}).
		Result()
	if err != nil {
		return "", false, fmt.Errorf("list parked tasks of shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	if len(last) == 0 {
		return "", false, nil
	}
	return last[0], true, nil
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
