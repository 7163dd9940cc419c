// Package documents decides which topics a scanner serves, and with which documents. It
// watches their source, which is Consul or a file, and applies what changes. It keeps the last
// good document of each topic in force and in Redis, and restores topics from there. It also
// registers the scanner in Consul, with a note about its documents.
package documents

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
)

const (
	// followInterval is how often the reloader looks for topics that were removed from
	// Redis. It also looks this often for topics that Redis keeps, until it has read them
	// once.
	followInterval = time.Second
	// restoreInterval is how often it looks for kept topics after that, because a removal
	// may bring its topic back.
	restoreInterval = 5 * time.Second
	// restoreAfter is how long it waits for the source to answer before it starts topics
	// with the documents that Redis keeps.
	restoreAfter = 3 * time.Second
)

// Config of a Reloader. Calls of Serve, Retire and Placement never overlap, and they may not call
// the Reloader.
type Config struct {
	// Source of the topics' documents.
	Source config.Source
	// SourceName is recorded in Redis for each topic; "" means that sources are neither
	// recorded nor compared.
	SourceName string
	// Register announces this scanner in Consul; nil without Consul.
	Register Register
	// Store has the fleet's data in Redis.
	Store *shard.Store
	// Instance names this scanner. Fleet returns the members heard from recently, and Live how many
	// lived at the last heartbeat.
	Instance string
	Fleet    func(ctx context.Context) ([]balance.Member, error)
	Live     func() int

	// Serve begins to serve a topic, until working ends. It gives a topic that is served a
	// newer document. The document has passed every check.
	Serve func(working context.Context, doc config.Document)
	// Retire ends a topic that is no longer served, in the background.
	Retire func(topic string)
	// Placement returns what the scanner knows of the placement of a served topic, and
	// whether the topic was removed from Redis.
	Placement func(topic string) (p shard.Placement, removed bool)

	// Beat says when in a second Follow works.
	Beat wake.Beat

	Metrics *Metrics
	Error   func(operation string) // counts an error
	Log     *slog.Logger
}

// Reloader decides which topics are served, and with which settings. It starts a topic
// that gets a document, applies a document that changes, and ends a topic that was
// removed. All documents are already parsed and checked. A broken one changes only what
// is reported about it. It is safe for concurrent use.
type Reloader struct {
	cfg          Config
	sources      *sources
	registration *registration // nil without Consul
	answered     chan struct{} // closed when the source has answered, or failed to, once

	// applying is held while a snapshot is applied. Lock it before mu.
	applying sync.Mutex
	latest   config.Snapshot // the newest that could be read; Documents is nil before the first
	asked    time.Time       // when the sources of all topics were last asked for

	mu      sync.Mutex
	topics  map[string]*served
	pending []string // topics with a document whose source isn't known
	faults  faults
	denied  map[string]string // by operation: that Redis denies it, and why
	index   uint64
	heard   bool // answered is closed.
	read    bool // the documents of the source, or those that Redis keeps, were read at least once.
}

// served is a topic with the document that it is served by.
type served struct {
	document config.Document
	digest   string
	orphan   bool // the source has no document of the topic
}

// New returns a Reloader, and starts nothing.
func New(cfg Config) *Reloader {
	r := &Reloader{
		cfg: cfg, sources: &sources{cfg: cfg, recorded: map[string]string{}},
		answered: make(chan struct{}), topics: map[string]*served{}, denied: map[string]string{},
		faults: faults{cfg: cfg, errors: map[string]string{}, kept: map[string]bool{}},
	}
	if cfg.Register != nil {
		r.registration = newRegistration(cfg)
	}
	return r
}

// Watch applies what the source reports until ctx ends, and keeps this scanner in Consul.
// adminAddr is the address of its admin server. Watch fails only if the source fails for good.
func (r *Reloader) Watch(ctx context.Context, adminAddr string) error {
	var registering sync.WaitGroup
	defer registering.Wait()
	if r.registration != nil {
		registering.Go(func() { r.registration.announce(ctx, adminAddr) })
		registering.Go(func() { r.registration.write(ctx) })
		registering.Go(func() { r.registration.sweep(ctx) })
	}
	err := r.cfg.Source.Watch(ctx, func(snap config.Snapshot) { r.apply(ctx, snap) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Leave removes this scanner from Consul, within some time.
func (r *Reloader) Leave(ctx context.Context, adminAddr string, within time.Duration) {
	if r.registration != nil {
		r.registration.leave(ctx, adminAddr, within)
	}
}

// apply puts a snapshot in force.
func (r *Reloader) apply(ctx context.Context, snap config.Snapshot) {
	r.applying.Lock()
	defer r.applying.Unlock()
	if snap.Err == nil {
		r.latest = snap
		r.ask(ctx, r.sources.unknown(snap.Documents))
	}
	r.putSnapshot(ctx, snap, true)
}

// revisit reads the sources of topics again and applies what that changes. While all of
// them are the scanner's own, it does so as often as askAgain says.
func (r *Reloader) revisit(ctx context.Context) {
	r.applying.Lock()
	defer r.applying.Unlock()
	docs := r.latest.Documents
	settled := r.sources.settled(docs)
	if docs == nil || settled && time.Since(r.asked) < askAgain(len(docs), r.cfg.Live()) {
		return
	}
	r.asked = time.Now()
	r.sources.retain(docs)
	r.ask(ctx, slices.Collect(maps.Keys(docs)))
	if !settled || !r.sources.settled(docs) {
		r.putSnapshot(ctx, r.latest, false)
	}
}

// ask asks for the sources of topics, and logs refusals.
func (r *Reloader) ask(ctx context.Context, names []string) {
	err := r.sources.ask(ctx, names)
	if r.deny("source", err != nil, err) && err != nil {
		r.cfg.Log.WarnContext(ctx, "the recorded sources of topics can't be read, this scanner's own settings apply",
			"error", connect.Advised("redis", err))
	}
}

// putSnapshot puts a snapshot in force; applying is held. A snapshot that isn't fresh is reported
// only if it brings other documents into force.
func (r *Reloader) putSnapshot(ctx context.Context, snap config.Snapshot, fresh bool) {
	docs, pending := r.sources.inForce(ctx, snap.Documents)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults.recordSource(ctx, snap.Err)
	if snap.Err == nil {
		r.pending = pending
		r.sources.logForeign(ctx)
		for name, doc := range docs {
			r.applyDocument(ctx, name, doc)
		}
		for name, in := range r.topics { // stays until somebody sets or removes it
			if _, there := docs[name]; !there && !slices.Contains(pending, name) && !in.orphan {
				in.orphan = true
				r.cfg.Log.WarnContext(ctx, "topic has no document any more, it is served with its last settings", "topic", name)
			}
		}
		r.faults.forgive(ctx, func(name string) bool {
			_, there := snap.Documents[name]
			return there || r.faults.kept[name]
		})
		r.index, r.read = snap.Index, true
		r.cfg.Metrics.Applied.Set(float64(snap.Index))
	}
	if !r.heard {
		r.heard = true
		close(r.answered)
	}
	r.faults.count()
	if r.registration != nil {
		r.registration.report(note{Applied: r.index, Errors: maps.Clone(r.faults.errors), Documents: r.digests()}, fresh)
	}
}

func (r *Reloader) applyDocument(ctx context.Context, name string, doc config.Document) {
	delete(r.faults.kept, name)
	if r.faults.record(ctx, name, doc.Err); doc.Err != nil {
		return
	}
	before := r.topics[name]
	if before != nil {
		before.orphan = false
		if bytes.Equal(before.document.Raw, doc.Raw) {
			return
		}
		for _, c := range config.Diff(before.document.Topic, doc.Topic) {
			r.cfg.Log.InfoContext(ctx, "topic setting applied", "topic", name, "key", c.Key, "old", c.Old, "new", c.New)
		}
	}
	r.serve(ctx, doc, false)
}

// serve puts a document in force; mu is held.
func (r *Reloader) serve(ctx context.Context, doc config.Document, orphan bool) {
	r.topics[doc.Name] = &served{doc, config.Digest(doc.Raw), orphan}
	r.cfg.Serve(ctx, doc)
}

// Shards returns the shard count of a topic's document in the source. It is 0 if there is no valid
// document, or if the fleet takes the topic from another source.
func (r *Reloader) Shards(ctx context.Context, topic string) (int, error) {
	if r.sources.foreign(topic) {
		return 0, nil
	}
	doc, there, err := r.cfg.Source.Read(ctx, topic)
	if err != nil || !there || doc.Err != nil {
		return 0, err
	}
	return doc.Topic.Shards, nil
}

// Follow serves topics that Redis knows and that the source doesn't have or can't report.
// It uses their last good documents, and ends the topics that were removed from Redis. It
// begins when the source has answered or restoreAfter is over, and ends with ctx.
func (r *Reloader) Follow(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-r.answered:
	case <-time.After(restoreAfter):
	}
	var restored time.Time
	for ctx.Err() == nil {
		r.revisit(ctx)
		if time.Since(restored) > restoreInterval {
			err := r.restore(ctx)
			if err == nil {
				restored = time.Now()
			}
			if r.deny("topics", shard.Denied(err), err) && err != nil {
				r.cfg.Log.WarnContext(ctx, "topics that redis keeps can't be read", "error", connect.Advised("redis", err))
			}
		}
		r.reap(ctx)
		retry.Sleep(ctx, r.cfg.Beat.Until(followInterval))
	}
}

// reap ends topics that were removed from Redis and have no document.
func (r *Reloader) reap(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, in := range r.topics {
		if !in.orphan {
			continue
		}
		if _, removed := r.cfg.Placement(name); !removed {
			continue
		}
		delete(r.topics, name)
		r.cfg.Log.InfoContext(ctx, "topic removed", "topic", name)
		r.cfg.Retire(name)
	}
}

// deny records why Redis refuses an operation, or that it doesn't. It reports whether that is
// new.
func (r *Reloader) deny(operation string, refused bool, err error) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, before := r.denied[operation]
	if delete(r.denied, operation); refused {
		r.denied[operation] = operation + " denied: " + connect.Advised("redis", err)
	}
	return before != refused
}

// digests returns the digests of the documents in force by topic; mu is held.
func (r *Reloader) digests() map[string]string {
	all := make(map[string]string, len(r.topics))
	for name, in := range r.topics {
		all[name] = in.digest
	}
	return all
}
