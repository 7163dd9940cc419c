package shard

import (
	"context"
	"hash/maphash"
	"strings"
)

// scanned is the number of IDs that one step of a scan reads: less than a millisecond of
// Redis.
const scanned = 500

// EachID calls yield with the ID of every stored task that begins with prefix, until
// yield returns false. It yields every task that stays stored from the first call to the
// last, and none twice, also while the shard count changes. It keeps a page in memory,
// and 8 bytes for each ID. Errors: task.ErrUnknownTopic, or Redis's.
func (t *Topic) EachID(ctx context.Context, prefix string, yield func(id string) bool) error {
	p, err := t.Placement(ctx)
	if err != nil {
		return t.Meant(ctx, err)
	}
	seed, met := maphash.MakeSeed(), map[uint64]struct{}{}
	first := func(id string) bool {
		hash := maphash.String(seed, id)
		_, known := met[hash]
		met[hash] = struct{}{}
		return !known
	}
	for {
		for _, at := range p.InOrder() {
			more, err := t.Shard(at).eachID(ctx, prefix, func(id string) bool { return !first(id) || yield(id) })
			if err != nil || !more {
				return err
			}
		}
		now, err := t.Placement(ctx)
		if err != nil || now == p {
			return err
		}
		p = now // tasks may have moved to a shard that was scanned before
	}
}

// eachID returns false if yield did.
func (s Shard) eachID(ctx context.Context, prefix string, yield func(id string) bool) (more bool, err error) {
	pattern := literal(prefix) + "*"
	for cursor := uint64(0); ; {
		var ids []string
		if ids, cursor, err = s.scan(ctx, cursor, pattern, scanned); err != nil {
			return false, err
		}
		for _, id := range ids {
			if !yield(id) {
				return false, nil
			}
		}
		if cursor == 0 {
			return true, nil
		}
	}
}

// literal returns a pattern of Redis that matches text only.
func literal(text string) string {
	var pattern strings.Builder
	for _, b := range []byte(text) {
		if strings.IndexByte(`*?[]^\`, b) >= 0 {
			pattern.WriteByte('\\')
		}
		pattern.WriteByte(b)
	}
	return pattern.String()
}
