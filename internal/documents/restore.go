package documents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sync/semaphore"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/retry"
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

// keep stores a topic's document in force in Redis, unless it comes from another source, which
// stores its own. It also tells all shards for how long they keep the events of tasks.
func (r *Reloader) keep(ctx context.Context, topic *shard.Topic, p shard.Placement, doc *config.Document) error {
	if r.sources.foreign(topic.Name()) {
		return nil
	}
	if err := topic.Store().Registry().KeepDocument(ctx, topic.Name(), r.cfg.SourceName, doc.Raw); err != nil {
		return err
	}
	return topic.KeepEvents(ctx, p, doc.Topic.History)
}

// Keeper stores the document in force of one topic in Redis, so that a fleet can start without its
// source.
type Keeper struct {
	Documents *Reloader
	Topic     *shard.Topic
	InForce   *InForce
	// Placement returns what is known of the topic's placement, and whether the topic was removed.
	Placement func() (p shard.Placement, removed bool)
	// Tried records an operation's error, or nil for success, and reports whether that is news.
	Tried func(operation string, err error) (news bool)
	// Starts is shared by all topics. Keep holds one of it when it first stores a document.
	Starts *semaphore.Weighted
	Log    *slog.Logger

	pause retry.Backoff
	// These are of the document that was stored last.
	kept   []byte
	under  shard.Placement
	losses uint64
}

// Stale reports whether the document in force must be stored. It must be stored again under each
// new placement, because a removal may end after the topic was created again. So it must after a
// loss of Redis's data, when the new placement may be the same as the old one.
func (k *Keeper) Stale() bool {
	p, removed := k.Placement()
	return p.Epoch > 0 && !removed && (p != k.under || k.InForce.losses.Load() != k.losses ||
		!bytes.Equal(k.InForce.Document().Raw, k.kept))
}

// Keep stores the document in force, and adds the topic to the known topics. Only one Keep runs at
// a time, so the newest document stays.
func (k *Keeper) Keep(ctx context.Context) {
	first := k.under.Epoch == 0
	if first && k.Starts.Acquire(ctx, 1) != nil {
		return // ctx ended
	}
	p, _ := k.Placement()
	doc, losses := k.InForce.Document(), k.InForce.losses.Load()
	err := k.Documents.keep(ctx, k.Topic, p, doc)
	if first {
		k.Starts.Release(1)
	}
	if err != nil {
		if k.Tried("document", err) && ctx.Err() == nil {
			k.Log.WarnContext(ctx, "redis does not keep the topic's document", "error", connect.Advised("redis", err))
		}
		k.pause.Wait(ctx)
		return
	}
	k.Tried("document", nil)
	k.pause.Reset()
	k.kept, k.under, k.losses = doc.Raw, p, losses
}
