package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
)

// SourceRecord is the recorded source of a topic's document, or why it isn't known.
type SourceRecord struct {
	// Source is "" where none is recorded.
	Source string
	Err    error
	// Refused says that Redis gives this user the same answer each time: a right is
	// missing, or the key is of another type.
	Refused bool
}

// TakeSources records source for each topic whose present record is the value that
// replace has for it; "" is none. It returns by topic what is recorded afterwards. To
// only read a topic's record, a caller gives source itself as the value.
func (s *Store) TakeSources(ctx context.Context, source string, replace map[string]string) map[string]SourceRecord {
	names, calls := make([]string, 0, len(replace)), make([]luascript.Call, 0, len(replace))
	for name, recorded := range replace {
		names = append(names, name)
		calls = append(calls, s.Topic(name).owning(source, recorded, "0", nil))
	}
	records := make(map[string]SourceRecord, len(names))
	for i, reply := range s.scripts.RunAll(ctx, calls) {
		recorded, err := reply.Text()
		// not logged in: a later call may be answered
		stranger := redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "WRONGPASS")
		records[names[i]] = SourceRecord{recorded, wrapIf(err, "record the source of topic %s", names[i]),
			Definite(err) && !stranger}
	}
	return records
}

// Keep adds the topic to the known ones and saves its document, unless another source is
// recorded. With source "" it saves without recording or comparing a source.
func (t *Topic) Keep(ctx context.Context, source string, document []byte) error {
	if err := t.keep(ctx, source, document); err != nil {
		return err
	}
	return t.list(ctx)
}

func (t *Topic) keep(ctx context.Context, source string, document []byte) error {
	if source == "" {
		return t.SaveDocument(ctx, document)
	}
	err := t.store.scripts.Run(ctx, t.owning(source, "", "1", document)).Err()
	return wrapIf(err, "save document of topic %s", t.name)
}

func (t *Topic) owning(source, replace, save string, document []byte) luascript.Call {
	return luascript.Call{Script: "keep_document", Keys: []string{t.documentKey(), t.sourceKey()},
		Args: []any{source, replace, save, document}}
}

// Source returns the recorded source of the topic's document; "" if there is none.
func (t *Topic) Source(ctx context.Context) (string, error) {
	source, err := t.store.Client(ctx).Get(ctx, t.sourceKey()).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the source of topic %s: %w", t.name, err)
	}
	return source, nil
}
