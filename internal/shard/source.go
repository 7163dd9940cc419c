package shard

import (
	"context"
	"fmt"
)

// takeSource replaces what is recorded as the source of the fleet's documents. KEYS: the
// record. ARGV: the new source, and the one that must be recorded; "" is none. Returns what
// is recorded then. Executed twice: the same.
const takeSource = `
local recorded = redis.call('GET', KEYS[1]) or ''
if recorded ~= ARGV[2] then return recorded end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]`

// TakeSource records where the fleet takes its topics' documents from, if over is recorded
// so far; "" is none. It returns what is recorded now.
func (s *Store) TakeSource(ctx context.Context, source, over string) (recorded string, err error) {
	recorded, err = s.rdb.Eval(ctx, takeSource, []string{s.sourceKey()}, source, over).Text()
	if err != nil {
		return "", fmt.Errorf("record the source of documents: %w", redisError(err))
	}
	return recorded, nil
}

func (s *Store) sourceKey() string { return s.prefix + ":source" }
