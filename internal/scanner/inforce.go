package scanner

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/documents"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/reshard"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/internal/wake"
)

// inForce holds a topic's document in force. It is safe for concurrent use.
type inForce struct {
	document atomic.Pointer[config.Document]
	changed  wake.Broadcast                    // fires at a new document or placement.
	desired  atomic.Uint64                     // counts the documents with a new shard count.
	losses   atomic.Uint64                     // counts the losses of Redis's data.
	resumed  atomic.Pointer[config.Document]   // the one whose pause has ended by itself.
	held     atomic.Pointer[registry.Hold]     // the pause in Redis; nil: none
	differs  atomic.Pointer[map[string]string] // settings that aren't the defaults
	pausing  telemetry.Switch                  // shows whether the topic is paused
}

func (f *inForce) settings() *config.Topic { return &f.document.Load().Topic }

// setDocument puts a document in force, which has passed every check. The caller then makes it
// known with changed.Fire.
func (f *inForce) setDocument(doc config.Document) {
	differs := differing(doc)
	f.differs.Store(&differs)
	before := f.document.Swap(&doc)
	f.pausing.Set(f.paused())
	if before == nil || before.Topic.Shards != doc.Topic.Shards {
		f.desired.Add(1)
	}
}

// aboutShards returns what the document says about the shards.
func (f *inForce) aboutShards() reshard.Document {
	version, s := f.desired.Load(), f.settings()
	return reshard.Document{Shards: s.Shards, Version: version, Tick: s.Tick}
}

// await waits until holds returns true, or until ctx ends. The condition may depend only
// on the document, the placement and the losses.
func (f *inForce) await(ctx context.Context, holds func() bool) {
	for ctx.Err() == nil {
		changed := f.changed.Next()
		if holds() {
			return
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// chore is work that begins when a document, a placement or a loss makes it necessary. Only one
// do of a chore runs at a time, and wanted isn't called meanwhile.
type chore struct {
	wanted func() bool
	do     func(ctx context.Context)
	busy   atomic.Bool
}

// follow does chores until ctx ends, and returns when they have ended. A topic in which nothing
// changes has one goroutine for all of them.
func (f *inForce) follow(ctx context.Context, chores ...*chore) {
	var busy sync.WaitGroup
	defer busy.Wait()
	ended := wake.NewSignal()
	for ctx.Err() == nil {
		changed := f.changed.Next()
		for _, j := range chores {
			if j.busy.Load() || !j.wanted() {
				continue
			}
			j.busy.Store(true)
			busy.Go(func() {
				j.do(ctx)
				j.busy.Store(false)
				ended.Send()
			})
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-ended:
		}
	}
}

// paused reports whether the topic is paused: in Redis, or by its document, whose pause hasn't
// ended by itself.
func (f *inForce) paused() bool { return f.held.Load() != nil || f.pausedByDocument() }

func (f *inForce) pausedByDocument() bool {
	doc := f.document.Load()
	return doc.Topic.Paused && f.resumed.Load() != doc
}

// pause returns when the pause ends, zero if it doesn't by itself, and its reason.
func (f *inForce) pause() (until time.Time, reason string) {
	s := f.settings()
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

// pauseEnds reports whether the document in force has a pause that will end by itself.
func (f *inForce) pauseEnds() bool {
	doc := f.document.Load()
	return !doc.Topic.PauseEnds().IsZero() && f.resumed.Load() != doc
}

// endPause ends the topic's pause at the time in its document. It returns after that, and when
// there is another document. A pause that has ended doesn't begin again when Redis's clock is
// set back.
func (f *inForce) endPause(ctx context.Context, store *shard.Topic, log *slog.Logger) {
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
			f.pausing.Set(f.paused())
			log.InfoContext(ctx, "the topic's pause has ended", "paused_until", doc.Topic.PausedUntil)
			f.changed.Fire()
			return
		}
		waiting, cancel := context.WithTimeout(ctx, wait)
		f.await(waiting, changed)
		cancel()
	}
}

// keeper stores a topic's document in force in Redis, so that a fleet can start without its
// source.
type keeper struct {
	documents *documents.Reloader
	store     *shard.Topic
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
	if err := k.documents.Keep(ctx, k.store, p, doc); err != nil {
		if k.health.Tried("document", err) && ctx.Err() == nil {
			k.log.WarnContext(ctx, "redis does not keep the topic's document", "error", connect.Advised("redis", err))
		}
		k.pause.Wait(ctx)
		return
	}
	k.health.Tried("document", nil)
	k.pause.Reset()
	k.kept, k.under, k.losses = doc.Raw, p, losses
}
