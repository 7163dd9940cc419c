package documents

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/internal/wake"
)

// InForce holds the document that a topic is served by, and whether the topic is paused. It is
// safe for concurrent use.
type InForce struct {
	// Changed fires at a new document, and at a new placement.
	Changed wake.Broadcast

	document atomic.Pointer[config.Document]
	counts   atomic.Uint64                     // documents with a new shard count.
	losses   atomic.Uint64                     // losses of Redis's data.
	resumed  atomic.Pointer[config.Document]   // the one whose pause has ended by itself.
	held     atomic.Pointer[registry.Hold]     // the pause in Redis; nil: none
	differs  atomic.Pointer[map[string]string] // settings that aren't the defaults
	pausing  telemetry.Switch                  // shows whether the topic is paused
}

// NewInForce puts a document in force, under a pause in Redis; nil: there is none. The switch
// shows whether the topic is paused.
func NewInForce(doc config.Document, held *registry.Hold, pausing telemetry.Switch) *InForce {
	f := &InForce{pausing: pausing}
	f.held.Store(held)
	f.Put(doc)
	return f
}

// Document returns the document in force.
func (f *InForce) Document() *config.Document { return f.document.Load() }

// Settings returns the settings of the document in force.
func (f *InForce) Settings() *config.Topic { return &f.document.Load().Topic }

// Differs returns the settings in force that aren't the defaults, and not the shard count, which
// the placement has; nil if there are none.
func (f *InForce) Differs() map[string]string { return *f.differs.Load() }

// Put puts a document in force, which has passed every check. The caller then makes it known with
// Changed.Fire.
func (f *InForce) Put(doc config.Document) {
	var differs map[string]string
	for _, c := range config.Diff(config.DefaultTopic(doc.Name), doc.Topic) {
		if c.Key == "shards" {
			continue
		}
		if differs == nil {
			differs = map[string]string{}
		}
		differs[c.Key] = c.New
	}
	f.differs.Store(&differs)
	before := f.document.Swap(&doc)
	f.pausing.Set(f.Paused())
	if before == nil || before.Topic.Shards != doc.Topic.Shards {
		f.counts.Add(1)
	}
}

// Desired returns the settings in force, and a version of their shard count, which is never too new.
func (f *InForce) Desired() (version uint64, s *config.Topic) {
	version = f.counts.Load()
	return version, f.Settings()
}

// Lost makes the document wait to be stored again, because Redis lost its data.
func (f *InForce) Lost() {
	f.losses.Add(1)
	f.Changed.Fire()
}

// Hold pauses the topic as Redis has it; nil: Redis doesn't. It reports whether that is news.
func (f *InForce) Hold(h *registry.Hold) (news bool) {
	before := f.held.Swap(h)
	if (before == nil) == (h == nil) {
		return false
	}
	f.pausing.Set(f.Paused())
	f.Changed.Fire()
	return true
}

// Await waits until holds returns true, or until ctx ends. The condition may depend only
// on the document, the placement and the losses.
func (f *InForce) Await(ctx context.Context, holds func() bool) {
	for ctx.Err() == nil {
		changed := f.Changed.Next()
		if holds() {
			return
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// Paused reports whether the topic is paused: in Redis, or by its document, whose pause hasn't
// ended by itself.
func (f *InForce) Paused() bool { return f.held.Load() != nil || f.pausedByDocument() }

func (f *InForce) pausedByDocument() bool {
	doc := f.document.Load()
	return doc.Topic.Paused && f.resumed.Load() != doc
}

// Pause returns when the pause ends, zero if it doesn't by itself, and its reason.
func (f *InForce) Pause() (until time.Time, reason string) {
	s := f.Settings()
	h, byDocument := f.held.Load(), f.pausedByDocument()
	switch {
	case h == nil && byDocument:
		return s.PauseEnds(), s.PausedReason
	case h == nil:
		return time.Time{}, ""
	case !byDocument:
		return h.Until, inRedis(h.Reason)
	case h.Until.IsZero() || s.PauseEnds().IsZero():
		return time.Time{}, inRedis(h.Reason)
	case s.PauseEnds().After(h.Until):
		return s.PauseEnds(), inRedis(h.Reason)
	}
	return h.Until, inRedis(h.Reason)
}

// inRedis adds to a reason where the pause is.
func inRedis(reason string) string {
	if reason == "" {
		return "in Redis"
	}
	return "in Redis: " + reason
}

// pauseLook is how often Redis's clock is read while a pause lasts, because the clock may
// be set. The reading is an estimate; Redis itself is asked once a minute.
const pauseLook = time.Second

// PauseEnds reports whether the document in force has a pause that will end by itself.
func (f *InForce) PauseEnds() bool {
	doc := f.document.Load()
	return !doc.Topic.PauseEnds().IsZero() && f.resumed.Load() != doc
}

// EndPause ends the topic's pause at the time in its document. It returns after that, and when
// there is another document. A pause that has ended doesn't begin again when Redis's clock is
// set back.
func (f *InForce) EndPause(ctx context.Context, store *shard.Topic, log *slog.Logger) {
	doc := f.document.Load()
	changed := func() bool { return f.document.Load() != doc }
	end := doc.Topic.PauseEnds()
	for ctx.Err() == nil && !changed() {
		wait := pauseLook
		if now, err := store.Now(ctx); err == nil { // else Redis is away, and nothing is delivered anyway
			wait = min(wait, end.Sub(time.UnixMilli(now)))
		}
		if wait <= 0 {
			f.resumed.Store(doc)
			f.pausing.Set(f.Paused())
			log.InfoContext(ctx, "the topic's pause has ended", "paused_until", doc.Topic.PausedUntil)
			f.Changed.Fire()
			return
		}
		waiting, cancel := context.WithTimeout(ctx, wait)
		f.Await(waiting, changed)
		cancel()
	}
}
