package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Parked lists up to count parked tasks of a shard, from an offset on, in the order of
// their IDs' bytes.
func (s Shard) Parked(ctx context.Context, offset, count int64) ([]Record, error) {
	ids, err := s.parkedIDs(ctx, offset, count)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return s.parkedRecords(ctx, ids)
}

// ParkedTask reads one parked task of a shard, and reports whether it is there.
func (s Shard) ParkedTask(ctx context.Context, id string) (r Record, there bool, err error) {
	score, err := s.topic.rdb.ZScore(ctx, s.due(), id).Result()
	if errors.Is(err, redis.Nil) || err == nil && !math.IsInf(score, 1) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("read parked task of shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	records, err := s.parkedRecords(ctx, []string{id})
	if err != nil || len(records) == 0 {
		return r, false, err
	}
	return records[0], true, nil
}

func (s Shard) parkedIDs(ctx context.Context, offset, count int64) ([]string, error) {
	ids, err := s.topic.rdb.ZRangeByScore(ctx, s.due(), parkedFrom(offset, count)).Result()
	return ids, wrapIf(err, "list parked tasks of shard %d of topic %s", s.n, s.topic.name)
}

func parkedFrom(offset, count int64) *redis.ZRangeBy {
	inf := strconv.FormatFloat(math.Inf(1), 'g', -1, 64)
	return &redis.ZRangeBy{Min: inf, Max: inf, Offset: offset, Count: count}
}

func (s Shard) parkedRecords(ctx context.Context, ids []string) ([]Record, error) {
	values, err := s.topic.rdb.HMGet(ctx, s.tasks(), ids...).Result()
	if err != nil {
		return nil, fmt.Errorf("list parked tasks of shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	gone, err := s.gone(ctx, ids, values)
	if err != nil {
		return nil, err
	}
	records := make([]Record, 0, len(ids))
	for i, id := range ids {
		if gone[id] {
			continue
		}
		text, _ := values[i].(string)
		r, err := DecodeRecord(s.topic.name, id, text)
		if err != nil {
			r.Err, r.Reason = err, err.Error()
		}
		records = append(records, r)
	}
	return records, nil
}

// gone are those of a page's tasks that have no record because they were moved, made
// due or removed since their IDs were read. One that is still parked lacks it.
func (s Shard) gone(ctx context.Context, ids []string, records []any) (map[string]bool, error) {
	var missing []string
	for i, id := range ids {
		if records[i] == nil {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	scores, err := s.topic.rdb.ZMScore(ctx, s.due(), missing...).Result()
	if err != nil {
		return nil, fmt.Errorf("list parked tasks of shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	gone := map[string]bool{}
	for i, id := range missing {
		gone[id] = !math.IsInf(scores[i], 1)
	}
	return gone, nil
}

// ParkedCursor walks once through the tasks of a shard that were parked when it set
// out, in the order of their IDs' bytes, in which Redis keeps what has the same score.
// Tasks that come and go meanwhile, the visited ones among them, make it neither miss
// one that stays nor visit one twice. It holds one page in memory.
type ParkedCursor struct {
	shard Shard
	begun bool
	last  string // visited
	end   string // the last one when it set out
	// offset is where the next page is guessed to begin: behind those visited that
	// stayed parked.
	offset int64
}

// ParkedCursor returns a cursor in front of a shard's parked tasks.
func (s Shard) ParkedCursor() *ParkedCursor {
	return &ParkedCursor{shard: s}
}

// Next returns up to count tasks that were not visited before; none: it is over.
func (c *ParkedCursor) Next(ctx context.Context, count int64) ([]Record, error) {
	if !c.begun {
		last, err := c.shard.topic.rdb.ZRevRangeByScore(ctx, c.shard.due(), parkedFrom(0, 1)).Result()
		if err != nil || len(last) == 0 {
			return nil, wrapIf(err, "list parked tasks of shard %d of topic %s", c.shard.n, c.shard.topic.name)
		}
		c.end = last[0]
	}
	for {
		ids, err := c.next(ctx, count)
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		c.begun, c.last = true, ids[len(ids)-1]
		records, err := c.shard.parkedRecords(ctx, ids)
		if err != nil || len(records) > 0 {
			return records, err
		}
	}
}

// Left tells the cursor that so many of the tasks visited are not parked any more. It
// needs fewer requests then.
func (c *ParkedCursor) Left(n int) { c.offset = max(c.offset-int64(n), 0) }

// next finds the IDs behind the last one visited. It reads from one in front of where
// they should begin: is that one still in front, none was missed. Else it searches, by
// doubling its steps and then by halving what is left: visited tasks may have been
// parked again, or removed.
func (c *ParkedCursor) next(ctx context.Context, count int64) ([]string, error) {
	low, high, step := int64(0), int64(-1), count // the last one in front is at low or behind it, and in front of high
	for from := max(c.offset-1, 0); ; {
		page, err := c.shard.parkedIDs(ctx, from, count+1)
		if err != nil {
			return nil, err
		}
		at := c.behind(page)
		switch {
		case at == 0 && from > 0:
			high = from
		case at == len(page) && int64(at) > count:
			low = from + int64(at) - 1
		default:
			return c.take(page[at:], from+int64(at), count), nil
		}
		switch {
		case high < 0:
			from, step = low+step, 2*step
		case low < high:
			from = (low + high) / 2
		default: // it changed under the search: from the beginning
			from, low, high, step = 0, 0, -1, count
		}
	}
}

// behind is where in a page the IDs begin that were not visited.
func (c *ParkedCursor) behind(page []string) int {
	if !c.begun {
		return 0
	}
	at, found := slices.BinarySearch(page, c.last)
	if found {
		at++
	}
	return at
}

// take ends a page, whose first task is at offset, where it must end.
func (c *ParkedCursor) take(page []string, offset, count int64) []string {
	page = page[:min(int64(len(page)), count)]
	for len(page) > 0 && page[len(page)-1] > c.end {
		page = page[:len(page)-1]
	}
	c.offset = offset + int64(len(page))
	return page
}

// Replay makes parked tasks of a shard due now and returns how many were parked.
func (s Shard) Replay(ctx context.Context, ids ...string) (int, error) {
	keys := []string{s.due(), s.tasks(), s.Wake()}
	n, err := s.topic.run(ctx, call{script: "replay", keys: keys, args: anys(ids)}).Int()
	return n, wrapIf(err, "replay in shard %d of topic %s", s.n, s.topic.name)
}

// PurgeParked removes parked tasks of a shard for good and returns how many
// were parked.
func (s Shard) PurgeParked(ctx context.Context, ids ...string) (int, error) {
	n, err := s.topic.run(ctx, call{script: "purge", keys: []string{s.due(), s.tasks()}, args: anys(ids)}).Int()
	return n, wrapIf(err, "purge in shard %d of topic %s", s.n, s.topic.name)
}
