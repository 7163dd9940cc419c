package machine_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

const (
	prefix = "m"
	topic  = "orders"
	// most is the largest shard count that a check uses.
	most = 8
)

// look is a script that reads all of the topic's keys at one moment.
const look = `
local shards = {}
for s = 0, tonumber(ARGV[1]) - 1 do
  local function key(kind) return 'm:' .. kind .. ':{orders:' .. s .. '}' end
  shards[s + 1] = {
    redis.call('ZRANGE', key('due'), 0, -1, 'WITHSCORES'), redis.call('HGETALL', key('task')),
    redis.call('SMEMBERS', key('handled')), redis.call('HGET', key('fence'), 'placement') or '',
  }
end
local members = {}
for s = 0, 63 do
  for _, member in ipairs(redis.call('ZRANGE', 'm:group:{orders:' .. s .. '}', 0, -1)) do
    members[#members + 1] = member
  end
end
return {redis.call('HGET', 'm:placement:{orders}', 'value'), shards, members}`

// stored is one copy of a task in one shard.
type stored struct {
	shard.Record
	shard int
	score float64
}

func (c stored) state() task.State {
	switch {
	case c.score < 0:
		return task.Leased
	case math.IsInf(c.score, 1):
		return task.Parked
	}
	return task.Waiting
}

// lapsed reports whether the task is leased and its lease has expired.
func (c stored) lapsed(now int64) bool { return c.score < 0 && -c.score <= float64(now) }

// snapshot holds all of the topic's data in Redis at one moment.
type snapshot struct {
	placement shard.Placement
	copies    []stored
	fences    [most]int64           // epochs; 0: the shard has seen none
	handled   [most]map[string]bool // the handled IDs of the fence's epoch
	members   map[string]bool       // of the index of groups
}

func take(ctx context.Context, rdb *redis.Client) (*snapshot, error) {
	reply, err := rdb.Do(ctx, "eval", look, 0, most).Slice()
	if err != nil {
		return nil, err
	}
	p := &snapshot{placement: parse(fmt.Sprint(reply[0])), members: map[string]bool{}}
	for _, member := range reply[2].([]any) {
		p.members[member.(string)] = true
	}
	for s, v := range reply[1].([]any) {
		parts := v.([]any)
		if fence := parts[3].(string); fence != "" {
			p.fences[s] = parse(fence).Epoch
		}
		p.handled[s] = map[string]bool{}
		for _, id := range parts[2].([]any) {
			p.handled[s][id.(string)] = true
		}
		if err := p.read(s, parts[0].([]any), parts[1].([]any)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func parse(text string) (p shard.Placement) {
	_, _ = fmt.Sscanf(text, "%d %d %d %s", &p.Epoch, &p.Shards, &p.Previous, &p.Phase)
	return p
}

// read adds one shard, whose sorted set and hash must hold the same IDs.
func (p *snapshot) read(s int, scores, records []any) error {
	texts := map[string]string{}
	for i := 0; i < len(records); i += 2 {
		texts[records[i].(string)] = records[i+1].(string)
	}
	if len(scores) != len(records) {
		return fmt.Errorf("shard %d holds %d scores and %d records", s, len(scores)/2, len(records)/2)
	}
	for i := 0; i < len(scores); i += 2 {
		id := scores[i].(string)
		r, err := shard.DecodeRecord(topic, id, texts[id])
		if err != nil {
			return fmt.Errorf("shard %d holds a score without a record of %s: %w", s, id, err)
		}
		score, err := strconv.ParseFloat(scores[i+1].(string), 64)
		if err != nil {
			return err
		}
		p.copies = append(p.copies, stored{r, s, score})
	}
	return nil
}

// of returns the copies of one task.
func (p *snapshot) of(id string) (copies []stored) {
	for _, c := range p.copies {
		if c.ID == id {
			copies = append(copies, c)
		}
	}
	return copies
}

// live reports whether a task is stored. A copy outside its new shard doesn't count if
// the handled set of that shard has the ID.
func (p *snapshot) live(id string) bool {
	home := p.placement.New(id)
	taken := p.fences[home] == p.placement.Epoch && p.handled[home][id]
	return slices.ContainsFunc(p.of(id), func(c stored) bool { return c.shard == home || !taken })
}

// same reports whether two snapshots are equal.
func (p *snapshot) same(q *snapshot) bool {
	if p.placement != q.placement || p.fences != q.fences || len(p.copies) != len(q.copies) {
		return false
	}
	for s := range most {
		if len(p.handled[s]) != len(q.handled[s]) {
			return false
		}
	}
	return slices.EqualFunc(p.copies, q.copies, func(a, b stored) bool {
		return a.ID == b.ID && a.shard == b.shard && a.score == b.score && a.Op == b.Op
	})
}
