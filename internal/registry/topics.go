package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/duefleet/duefleet/internal/didyoumean"
	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
)

// Topics returns the known topics, sorted: each was served once, and no removal has completed since.
func (r *Registry) Topics(ctx context.Context) ([]string, error) {
	names, err := r.client(ctx).SMembers(ctx, r.key("topics")).Result()
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// AddTopic adds a topic to the known ones.
func (r *Registry) AddTopic(ctx context.Context, topic string) error {
	err := r.client(ctx).SAdd(ctx, r.key("topics"), topic).Err()
	return wrapIf(luascript.Explain(err), "list topic %s", topic)
}

// DropTopic removes a topic from the known ones.
func (r *Registry) DropTopic(ctx context.Context, topic string) error {
	return wrapIf(r.client(ctx).SRem(ctx, r.key("topics"), topic).Err(), "forget topic %s", topic)
}

// Suggest adds the known topic with a similar name to a task.ErrUnknownTopic, if there is
// one and the user may list the topics. It returns other errors unchanged.
func (r *Registry) Suggest(ctx context.Context, topic string, err error) error {
	if !errors.Is(err, task.ErrUnknownTopic) {
		return err
	}
	names, unlisted := r.Topics(ctx)
	if like := didyoumean.Of(topic, names); unlisted == nil && like != "" {
		return fmt.Errorf("%w; did you mean topic %s?", err, like)
	}
	return err
}

// TopicKeys returns the keys that the registry has for one topic.
func (r *Registry) TopicKeys(topic string) []string {
	return []string{r.documentKey(topic), r.rateKey(topic), r.sourceKey(topic), r.earlierKey(topic)}
}

func (r *Registry) topicKey(kind, topic string) string { return r.key(kind) + ":{" + topic + "}" }

func (r *Registry) documentKey(topic string) string { return r.topicKey("document", topic) }

// sourceKey names the record of where the document comes from. Like earlierKey, it begins with the
// document's key, so that users with rights to documents have them here too.
func (r *Registry) sourceKey(topic string) string { return r.documentKey(topic) + ":source" }

// earlierKey names the documents before the last one, if they came from a file.
func (r *Registry) earlierKey(topic string) string { return r.documentKey(topic) + ":earlier" }

func (r *Registry) rateKey(topic string) string { return r.topicKey("rate", topic) }
