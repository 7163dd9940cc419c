package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// MaxHistory is the longest time for which events are kept.
const MaxHistory = 7 * 24 * time.Hour

// historyField of a shard's fence says for how many ms the shard keeps events.
const historyField = "history"

// KeepEvents makes all shards of a placement keep the events of their tasks, for that long; 0
// ends it. Events that are kept already stay until they expire. The first shard begins first
// and ends last, so it keeps events whenever another shard does.
func (t *Topic) KeepEvents(ctx context.Context, p Placement, history time.Duration) error {
	rdb, first := t.store.Client(ctx), t.Shard(0).fence()
	value := strconv.FormatInt(history.Milliseconds(), 10)
	if history == 0 {
		kept, err := rdb.HGet(ctx, first, historyField).Result()
		if errors.Is(err, redis.Nil) || err == nil && kept == value {
			return nil
		}
		if err != nil {
			return t.unkept(err)
		}
	} else if err := rdb.HSet(ctx, first, historyField, value).Err(); err != nil {
		return t.unkept(err)
	}
	pipe := rdb.Pipeline()
	for at := 1; at < p.Scanned(); at++ {
		pipe.HSet(ctx, t.Shard(at).fence(), historyField, value)
	}
	_, err := pipe.Exec(ctx)
	if err == nil && history == 0 {
		err = rdb.HSet(ctx, first, historyField, value).Err()
	}
	return t.unkept(err)
}

func (t *Topic) unkept(err error) error {
	return wrapIf(err, "set for how long topic %s keeps events", t.name)
}

// Events returns the events of a task that are kept, in order. It reads every shard that the
// ID can have had, whatever the shard count was. Deliveries that consumers remember are among
// them. It has the errors of Placement.
func (t *Topic) Events(ctx context.Context, id string) ([]task.Event, error) {
	if _, err := t.Placement(ctx); err != nil {
		return nil, t.store.registry.Suggest(ctx, t.name, luascript.Unasked(err))
	}
	var calls []luascript.Call
	for _, at := range places(id) {
		calls = append(calls, luascript.Call{Script: "events", Keys: []string{t.Shard(at).events()},
			Args: []any{id, int(MaxHistory/time.Hour) + 1}})
	}
	var all []task.Event
	for i, reply := range t.store.scripts.RunAll(ctx, calls) {
		text, err := reply.Text()
		if err == nil {
			all, err = appendEvents(all, text)
		}
		if err != nil {
			return nil, fmt.Errorf("read the events of task %q of topic %s (%s): %w", id, t.name, calls[i].Keys[0],
				luascript.Unasked(err))
		}
	}
	handled, err := t.handledEvents(ctx, id)
	if err != nil {
		return nil, err
	}
	all = append(all, handled...)
	slices.SortStableFunc(all, func(a, b task.Event) int { return a.At.Compare(b.At) })
	return all, nil
}

// handledEvents returns the deliveries in the task's delivery history that were handled.
func (t *Topic) handledEvents(ctx context.Context, id string) ([]task.Event, error) {
	fields, err := t.store.Client(ctx).HGetAll(ctx, t.historyKeys(id)[0]).Result()
	if err != nil {
		return nil, fmt.Errorf("read the delivery history of task %q of topic %s: %w", id, t.name, luascript.Unasked(err))
	}
	var handled []task.Event
	for field, value := range fields {
		due, noDue := strconv.ParseInt(field, 10, 64)
		at, noTime := strconv.ParseInt(value, 10, 64)
		if noDue == nil && noTime == nil && at > 0 {
			handled = append(handled, task.Event{Kind: task.Handled, At: utc(at), Due: utc(due)})
		}
	}
	return handled, nil
}

func utc(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// places returns every shard that an ID has under some shard count. Jump consistent hashing
// (see Place) gives an ID about nine of 4,096, in ascending order.
func places(id string) []int {
	all := []int{0}
	for shards := 2; shards <= MaxShards; shards++ {
		if at := Place(id, shards); at != all[len(all)-1] {
			all = append(all, at)
		}
	}
	return all
}

// eventKinds has the kinds by their letters in Redis; see lib_events.lua.
func eventKinds() map[byte]task.EventKind {
	return map[byte]task.EventKind{
		's': task.Scheduled, 'm': task.Moved, 'd': task.Delivered, 'c': task.Cancelled, 't': task.Retried,
		'p': task.ParkedEvent, 'r': task.Replayed, 'x': task.Purged,
	}
}

// eventHead is the size of an event without its length and its text, in bytes.
const eventHead = 1 + 6 + 6

// appendEvents appends the events of one shard, as lib_events.lua writes them. It leaves out
// kinds that a newer version added.
func appendEvents(all []task.Event, text string) ([]task.Event, error) {
	kinds := eventKinds()
	for len(text) > 0 {
		size := int(text[0])
		if size < eventHead || len(text) <= size {
			return nil, errors.New("an event is cut short")
		}
		one := text[1 : size+1]
		text = text[size+1:]
		kind, known := kinds[one[0]]
		if !known {
			continue
		}
		e := task.Event{Kind: kind, At: utc(uint48(one[1:7])), Reason: one[eventHead:]}
		if due := uint48(one[7:13]); due > 0 {
			e.Due = utc(due)
		}
		all = append(all, e)
	}
	return all, nil
}
