package scanner

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
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

// reloader decides which topics are served, and with which settings. It starts a topic
// that gets a document, applies a document that changes, and ends a topic that was
// removed. All documents are already parsed and checked. A broken one changes only what
// is reported about it.
type reloader struct {
	of       lifecycle
	sources  *sources
	store    *shard.Store
	metrics  *telemetry.Metrics
	log      *slog.Logger
	refusals refusals // of operations that belong to no topic

	answered chan struct{} // closed when the source has answered, or failed to, once

	// applying is held while a snapshot is applied. Lock it before mu.
	applying sync.Mutex
	latest   config.Snapshot // the newest that could be read; Documents is nil before the first
	asked    time.Time       // when the sources of all topics were last asked for

	mu       sync.Mutex
	topics   map[string]*served
	pending  []string          // topics with a document whose source isn't known
	reported map[string]string // the digests that report took last
	refused  string            // what was last logged about documents that wait
	index    uint64
	errors   map[string]string // by topic; "" is the source as a whole.
	away     bool              // the source can't be read.
	advised  string            // the advice that was last logged about that.
	kept     map[string]bool   // topics whose error is in the document that Redis keeps.
	heard    bool              // answered is closed.
	read     bool              // the source's documents were read at least once.
	restored bool              // the documents that Redis keeps were read at least once.
}

// lifecycle starts and ends topics for the reloader. Scanner implements it.
type lifecycle interface {
	// serve serves a topic until working ends; mu is held.
	serve(working context.Context, doc config.Document) *served
	// retire ends a topic that is no longer served, in the background.
	retire(ctx context.Context, v *served)
	// report takes the index in force, the errors by topic, and the digests of the
	// documents in force by topic. It is called after each snapshot, and when other
	// documents come into force; mu is held.
	report(index uint64, errs, documents map[string]string)
}

func newReloader(of lifecycle, sources *sources, store *shard.Store, metrics *telemetry.Metrics,
	log *slog.Logger) *reloader {
	return &reloader{
		of: of, sources: sources, store: store, metrics: metrics, log: log,
		answered: make(chan struct{}), topics: map[string]*served{}, errors: map[string]string{}, kept: map[string]bool{},
	}
}

// watch applies what the source reports until ctx ends. It fails only if the source fails
// for good.
func (r *reloader) watch(ctx context.Context) error {
	err := r.sources.Watch(ctx, func(snap config.Snapshot) { r.apply(ctx, snap) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// apply puts a snapshot in force.
func (r *reloader) apply(ctx context.Context, snap config.Snapshot) {
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
func (r *reloader) revisit(ctx context.Context) {
	r.applying.Lock()
	defer r.applying.Unlock()
	docs := r.latest.Documents
	settled := r.sources.settled(docs)
	if docs == nil || settled && time.Since(r.asked) < askAgain(len(docs)) {
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
func (r *reloader) ask(ctx context.Context, names []string) {
	err := r.sources.ask(ctx, names)
	if r.refusals.record(refusal{everyShard, "source"}, err != nil, err) && err != nil {
		r.log.WarnContext(ctx, "the recorded sources of topics can't be read, this scanner's own settings apply",
			"error", redisText(err))
	}
}

// putSnapshot puts a snapshot in force; applying is held. A snapshot that isn't fresh is reported
// only if it brings other documents into force.
func (r *reloader) putSnapshot(ctx context.Context, snap config.Snapshot, fresh bool) {
	docs, pending := r.sources.inForce(ctx, snap.Documents)
	r.mu.Lock()
	defer r.mu.Unlock()
	var mistakes config.Errors
	if snap.Err != nil && !errors.As(snap.Err, &mistakes) {
		r.recordAway(ctx, snap.Err)
	} else {
		r.recordAway(ctx, nil)
		r.recordError(ctx, "", snap.Err)
	}
	if snap.Err == nil {
		r.pending = pending
		r.logRefused(ctx)
		for name, doc := range docs {
			r.applyDocument(ctx, name, doc)
		}
		for name, v := range r.topics { // stays until somebody sets or removes it
			if _, there := docs[name]; !there && !slices.Contains(pending, name) && v.orphan.CompareAndSwap(false, true) {
				r.log.WarnContext(ctx, "topic has no document any more, it is served with its last settings", "topic", name)
			}
		}
		r.forgive(ctx, func(name string) bool {
			_, there := snap.Documents[name]
			return there || r.kept[name]
		})
		r.index, r.read = snap.Index, true
		r.metrics.ConfigApplied.Set(float64(snap.Index))
	}
	if !r.heard {
		r.heard = true
		close(r.answered)
	}
	r.count()
	if digests := r.digests(); fresh || !maps.Equal(digests, r.reported) {
		r.reported = digests
		r.of.report(r.index, r.errors, digests)
	}
}

// logRefused logs which of the scanner's documents wait because of another source, when
// that changes; r.mu is held.
func (r *reloader) logRefused(ctx context.Context) {
	why := r.sources.why()
	switch {
	case why == r.refused:
	case why != "":
		r.log.ErrorContext(ctx, "settings not applied: the fleet takes them from another source", "error", why)
	default:
		r.log.InfoContext(ctx, "settings applied: this scanner's source is the topics' now")
	}
	r.refused = why
}

// count sets the metric of broken documents; r.mu is held. It leaves out the error of a
// source that can't be read.
func (r *reloader) count() {
	n := len(r.errors)
	if r.away {
		n--
	}
	r.metrics.ConfigBroken.Set(float64(n))
}

func (r *reloader) applyDocument(ctx context.Context, name string, doc config.Document) {
	delete(r.kept, name)
	if r.recordError(ctx, name, doc.Err); doc.Err != nil {
		return
	}
	v := r.topics[name]
	if v == nil {
		r.topics[name] = r.of.serve(ctx, doc)
		return
	}
	v.orphan.Store(false)
	if before := v.topic.inForce.document.Load(); !bytes.Equal(before.Raw, doc.Raw) {
		for _, c := range config.Diff(before.Topic, doc.Topic) {
			r.log.InfoContext(ctx, "topic setting applied", "topic", name, "key", c.Key, "old", c.Old, "new", c.New)
		}
		v.topic.apply(doc)
	}
}

// recordError records what is wrong with a topic's document or with the source, and logs it
// once.
func (r *reloader) recordError(ctx context.Context, name string, err error) {
	log := r.log
	if name != "" {
		log = log.With("topic", name)
	}
	if err == nil {
		if r.errors[name] != "" {
			delete(r.errors, name)
			log.InfoContext(ctx, "configuration is good again")
		}
		return
	}
	if r.errors[name] == err.Error() {
		return
	}
	r.errors[name] = err.Error()
	r.metrics.ConfigRefused.Inc()
	log.ErrorContext(ctx, "configuration not applied, the last good one stays in force", "error", err)
}

// recordAway records that the source can't be read, and logs when that begins and ends. It
// is no error in the configuration: the settings in force stay, and changes wait.
func (r *reloader) recordAway(ctx context.Context, err error) {
	switch {
	case err != nil:
		advice := config.Advice("consul", err.Error())
		first := !r.away
		r.away, r.errors[""] = true, err.Error()
		if first {
			r.metrics.ConfigRefused.Inc()
		}
		if first || advice != "" && advice != r.advised {
			r.advised = advice
			r.log.WarnContext(ctx, "the source of topics can't be read, the last good settings stay in force", "error", err)
		}
	case r.away:
		r.away, r.advised = false, ""
		delete(r.errors, "")
		r.log.InfoContext(ctx, "the source of topics can be read again")
	}
}

// forgive removes the errors of documents that are gone.
func (r *reloader) forgive(ctx context.Context, there func(name string) bool) {
	for name := range r.errors {
		if name != "" && !there(name) {
			delete(r.errors, name)
			delete(r.kept, name)
			r.log.InfoContext(ctx, "configuration that was not applied is gone", "topic", name)
		}
	}
}

// follow serves topics that Redis knows and that the source doesn't have or can't report.
// It uses their last good documents, and ends the topics that were removed from Redis. It
// begins when the source has answered or restoreAfter is over, and ends with ctx.
func (r *reloader) follow(ctx context.Context) {
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
			if r.refusals.recordDenied("topics", err) && err != nil {
				r.log.WarnContext(ctx, "topics that redis keeps can't be read", "error", redisText(err))
			}
		}
		r.reap(ctx)
		retry.Sleep(ctx, followInterval)
	}
}

// reap ends topics that were removed from Redis and have no document.
func (r *reloader) reap(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, v := range r.topics {
		if _, removed := v.topic.resharder.Known(); !removed || !v.orphan.Load() {
			continue
		}
		delete(r.topics, name)
		r.log.InfoContext(ctx, "topic removed", "topic", name)
		r.of.retire(ctx, v)
	}
}

// forget removes the metrics of a topic that has ended. If the topic was created again
// meanwhile, its metrics stay.
func (r *reloader) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.topics[name] == nil {
		r.metrics.Forget(name)
	}
}

// all returns the topics that are served.
func (r *reloader) all() []*served {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.topics))
}

// notes returns what this scanner reports about topics in its heartbeat. It leaves out
// topics with nothing to report.
func (r *reloader) notes() map[string]balance.TopicNote {
	notes := map[string]balance.TopicNote{}
	for _, v := range r.all() {
		if n := v.topic.topicNote(); !n.IsZero() {
			notes[v.topic.name] = n
		}
	}
	return notes
}

// documents returns a hash of the documents in force; 0 before any were read.
func (r *reloader) documents() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.read && !r.restored {
		return 0
	}
	return config.HashAll(r.digests())
}

// digests returns the digests of the documents in force by topic; r.mu is held.
func (r *reloader) digests() map[string]string {
	all := make(map[string]string, len(r.topics))
	for name, v := range r.topics {
		all[name] = config.Digest(v.topic.inForce.document.Load().Raw)
	}
	return all
}

// sourceAnswers reports whether the source answers; r.mu is held.
func (r *reloader) sourceAnswers() bool { return r.heard && r.errors[""] == "" }

// sourceAway reports whether the source can't be read.
func (r *reloader) sourceAway() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away
}

// state returns the index in force, the errors by topic, and whether the source has
// answered, or failed to, at least once.
func (r *reloader) state() (index uint64, errs map[string]string, heard bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.index, maps.Clone(r.errors), r.heard
}
