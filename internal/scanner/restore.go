package scanner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/reshard"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

func (r *reloader) restore(ctx context.Context) error {
	names, err := r.store.Topics(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.forgive(ctx, func(name string) bool { return !r.kept[name] || slices.Contains(names, name) })
	r.count()
	r.mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, r.restoreTopic(ctx, name))
	}
	err = errors.Join(errs...)
	if err == nil {
		r.mu.Lock()
		r.restored = true
		r.mu.Unlock()
	}
	return err
}

// restoreTopic serves a topic with the document that Redis keeps, unless it is served
// already or was removed. It doesn't create a topic that would only become an orphan.
func (r *reloader) restoreTopic(ctx context.Context, name string) error {
	r.mu.Lock()
	served, answers := r.topics[name] != nil, r.sourceAnswers()
	r.mu.Unlock()
	if served {
		return nil
	}
	p, err := r.store.Topic(name).Placement(ctx)
	unknown := errors.Is(err, task.ErrUnknownTopic)
	if p.Phase == shard.Removed || unknown && answers {
		return nil // without a document in the source the topic isn't made
	}
	if err != nil && !unknown {
		return err
	}
	raw, err := r.store.Topic(name).Document(ctx)
	if err != nil || raw == nil {
		return err
	}
	r.startKept(ctx, keptDocument(name, raw))
	return nil
}

// startKept serves a topic with a document that Redis keeps, unless the source was
// faster.
func (r *reloader) startKept(ctx context.Context, doc config.Document) {
	r.mu.Lock()
	defer r.mu.Unlock()
	broken := r.errors[doc.Name] != "" && !r.kept[doc.Name] // the source's own document is broken
	switch {
	case r.topics[doc.Name] != nil:
	case doc.Err != nil && broken: // the source's own document is the one to fix
	case doc.Err != nil:
		r.kept[doc.Name] = true
		r.recordError(ctx, doc.Name, doc.Err)
		r.count()
	default:
		v := r.of.serve(ctx, doc)
		v.orphan.Store(r.sourceAnswers() && !broken)
		r.topics[doc.Name] = v
		r.log.WarnContext(ctx, "topic served with the last good document that Redis keeps", "topic", doc.Name)
	}
}

// keptDocument parses a document that Redis keeps.
func keptDocument(name string, raw []byte) config.Document {
	doc := config.ParseDocument(name, raw, 0)
	if doc.Err != nil {
		doc.Err = fmt.Errorf("last good document in Redis: %w", doc.Err)
	}
	return doc
}

// keepAgain makes all topics store their documents again, because Redis lost its data. While
// a topic isn't made again, it counts as removed, and its document waits.
func (r *reloader) keepAgain() {
	for _, v := range r.all() {
		v.topic.inForce.losses.Add(1)
		v.topic.inForce.changed.Fire()
	}
}

// keeper stores a topic's document in force in Redis, so that a fleet can start without its
// source.
type keeper struct {
	store     *shard.Topic
	sources   *sources
	inForce   *inForce
	resharder *reshard.Resharder
	health    *topicHealth
	log       *slog.Logger
	pause     retry.Backoff

	// These are of the document that was stored last.
	kept   []byte
	under  shard.Placement
	losses uint64
}

// stale reports whether the document in force must be stored. It must be stored again under each
// new placement, because a removal may end after the topic was created again. So it must after a
// loss of Redis's data, when the new placement may be the same as the old one.
func (k *keeper) stale() bool {
	p, removed := k.resharder.Known()
	return p.Epoch > 0 && !removed && (p != k.under || k.inForce.losses.Load() != k.losses ||
		!bytes.Equal(k.inForce.document.Load().Raw, k.kept))
}

// keep stores the document in force, and adds the topic to the known topics. Only one keep
// runs at a time, so the newest document stays.
func (k *keeper) keep(ctx context.Context) {
	p, _ := k.resharder.Known()
	doc, losses := k.inForce.document.Load(), k.inForce.losses.Load()
	if err := k.save(ctx, p, doc); err != nil {
		if k.health.Tried("document", err) && ctx.Err() == nil {
			k.log.WarnContext(ctx, "redis does not keep the topic's document", "error", redisText(err))
		}
		k.pause.Wait(ctx)
		return
	}
	k.health.Tried("document", nil)
	k.pause.Reset()
	k.kept, k.under, k.losses = doc.Raw, p, losses
}

// save stores a document in Redis, unless it comes from another source, which stores its
// own. It also tells all shards for how long they keep the events of tasks.
func (k *keeper) save(ctx context.Context, p shard.Placement, doc *config.Document) error {
	if k.sources.foreign(k.store.Name()) {
		return nil
	}
	if err := k.store.KeepDocument(ctx, k.sources.own, doc.Raw); err != nil {
		return err
	}
	return k.store.KeepEvents(ctx, p, doc.Topic.History)
}
