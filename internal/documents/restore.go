package documents

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// restore serves the topics that Redis keeps, and reports the errors of their documents.
func (r *Reloader) restore(ctx context.Context) error {
	names, err := r.cfg.Store.Registry().Topics(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.faults.forgive(ctx, func(name string) bool { return !r.faults.kept[name] || slices.Contains(names, name) })
	r.faults.count()
	r.mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, r.restoreTopic(ctx, name))
	}
	err = errors.Join(errs...)
	if err == nil {
		r.mu.Lock()
		r.read = true
		r.mu.Unlock()
	}
	return err
}

// restoreTopic serves a topic with the document that Redis keeps, unless it is served
// already or was removed. It doesn't create a topic that would only become an orphan.
func (r *Reloader) restoreTopic(ctx context.Context, name string) error {
	r.mu.Lock()
	served, answers := r.topics[name] != nil, r.sourceAnswers()
	r.mu.Unlock()
	if served {
		return nil
	}
	p, err := r.cfg.Store.Topic(name).Placement(ctx)
	unknown := errors.Is(err, task.ErrUnknownTopic)
	if p.Phase == shard.Removed || unknown && answers {
		return nil // without a document in the source the topic isn't made
	}
	if err != nil && !unknown {
		return err
	}
	raw, err := r.cfg.Store.Registry().Document(ctx, name)
	if err != nil || raw == nil {
		return err
	}
	r.startKept(ctx, keptDocument(name, raw))
	return nil
}

// startKept serves a topic with a document that Redis keeps, unless the source was
// faster.
func (r *Reloader) startKept(ctx context.Context, doc config.Document) {
	r.mu.Lock()
	defer r.mu.Unlock()
	broken := r.faults.errors[doc.Name] != "" && !r.faults.kept[doc.Name] // the source's own document is broken
	switch {
	case r.topics[doc.Name] != nil:
	case doc.Err != nil && broken: // the source's own document is the one to fix
	case doc.Err != nil:
		r.faults.kept[doc.Name] = true
		r.faults.record(ctx, doc.Name, doc.Err)
		r.faults.count()
	default:
		r.serve(ctx, doc, r.sourceAnswers() && !broken)
		r.cfg.Log.WarnContext(ctx, "topic served with the last good document that Redis keeps", "topic", doc.Name)
	}
}

// sourceAnswers reports whether the source answers; mu is held.
func (r *Reloader) sourceAnswers() bool { return r.heard && r.faults.errors[""] == "" }

// keptDocument parses a document that Redis keeps.
func keptDocument(name string, raw []byte) config.Document {
	doc := config.ParseDocument(name, raw, 0)
	if doc.Err != nil {
		doc.Err = fmt.Errorf("last good document in Redis: %w", doc.Err)
	}
	return doc
}

// Keep stores a topic's document in force in Redis, unless it comes from another source, which
// stores its own. It also tells all shards for how long they keep the events of tasks.
func (r *Reloader) Keep(ctx context.Context, topic *shard.Topic, p shard.Placement, doc *config.Document) error {
	if r.sources.foreign(topic.Name()) {
		return nil
	}
	if err := topic.Store().Registry().KeepDocument(ctx, topic.Name(), r.cfg.SourceName, doc.Raw); err != nil {
		return err
	}
	return topic.KeepEvents(ctx, p, doc.Topic.History)
}
