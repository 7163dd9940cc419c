package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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

// Sources returns the records of topics.
func (r *Registry) Sources(ctx context.Context, topics []string) map[string]SourceRecord {
	pipe := r.client(ctx).Pipeline()
	replies := make([]*redis.StringCmd, len(topics))
	for i, name := range topics {
		replies[i] = pipe.Get(ctx, r.sourceKey(name))
	}
	// Each reply has its error, unless Redis let no connection log in.
	_, failed := pipe.Exec(ctx)
	if slices.ContainsFunc(replies, func(reply *redis.StringCmd) bool { return reply.Err() != nil }) {
		failed = nil
	}
	records := make(map[string]SourceRecord, len(topics))
	for i, name := range topics {
		recorded, err := replies[i].Result()
		if err = cmp.Or(err, failed); errors.Is(err, redis.Nil) {
			err = nil
		}
		records[name] = record(recorded, wrapIf(err, "read the source of topic %s", name))
	}
	return records
}

// record makes a record of an answer. A client that isn't logged in may be answered later.
func record(source string, err error) SourceRecord {
	stranger := redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "WRONGPASS")
	return SourceRecord{source, err, luascript.Definite(err) && !stranger}
}

// TakeSources records source for each topic whose present record is the value that
// replace has for it; "" is none. It returns by topic what is recorded afterwards.
func (r *Registry) TakeSources(ctx context.Context, source string, replace map[string]string) map[string]SourceRecord {
	names, calls := make([]string, 0, len(replace)), make([]luascript.Call, 0, len(replace))
	for name, recorded := range replace {
		names = append(names, name)
		calls = append(calls, r.keeping(name, source, recorded, "0", nil))
	}
	records := make(map[string]SourceRecord, len(names))
	for i, reply := range r.scripts.RunAll(ctx, calls) {
		recorded, err := reply.Text()
		records[names[i]] = record(recorded, wrapIf(err, "record the source of topic %s", names[i]))
	}
	return records
}

// KeepDocument adds the topic to the known ones and saves its document, unless another source is
// recorded. With source "" it saves without recording or comparing a source.
func (r *Registry) KeepDocument(ctx context.Context, topic, source string, document []byte) error {
	var err error
	if source == "" {
		err = r.SaveDocument(ctx, topic, document)
	} else {
		err = r.scripts.Run(ctx, r.keeping(topic, source, "", "1", document)).Err()
		err = wrapIf(err, "save document of topic %s", topic)
	}
	if err != nil {
		return err
	}
	return r.AddTopic(ctx, topic)
}

func (r *Registry) keeping(topic, source, replace, save string, document []byte) luascript.Call {
	return luascript.Call{Script: "keep_document", Keys: []string{r.documentKey(topic), r.sourceKey(topic),
		r.earlierKey(topic)}, Args: []any{source, replace, save, document}}
}

// SaveDocument stores the last good document of a topic, so that a fleet can start
// while the source of the document is away.
func (r *Registry) SaveDocument(ctx context.Context, topic string, document []byte) error {
	err := r.client(ctx).Set(ctx, r.documentKey(topic), document, 0).Err()
	return wrapIf(luascript.Explain(err), "save document of topic %s", topic)
}

// Document returns the last good document of a topic, nil if there is none.
func (r *Registry) Document(ctx context.Context, topic string) ([]byte, error) {
	document, err := r.client(ctx).Get(ctx, r.documentKey(topic)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read document of topic %s: %w", topic, err)
	}
	return document, nil
}

// Documents returns the last good document of a topic and those before it that Redis keeps, up to ten
// from a file. The latest comes first.
func (r *Registry) Documents(ctx context.Context, topic string) (all [][]byte, err error) {
	last, err := r.Document(ctx, topic)
	if err != nil {
		return nil, err
	}
	if last != nil {
		all = append(all, last)
	}
	earlier, err := r.client(ctx).ZRevRange(ctx, r.earlierKey(topic), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read earlier documents of topic %s: %w", topic, err)
	}
	for _, document := range earlier {
		all = append(all, []byte(document))
	}
	return all, nil
}

// Source returns the recorded source of a topic's document; "" if there is none.
func (r *Registry) Source(ctx context.Context, topic string) (string, error) {
	source, err := r.client(ctx).Get(ctx, r.sourceKey(topic)).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the source of topic %s: %w", topic, err)
	}
	return source, nil
}
