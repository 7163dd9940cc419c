package scanner

import (
	"context"
	"time"
)

// pauseLook is how often Redis's clock is read while a pause lasts, because the clock may
// be set. The reading is an estimate; Redis itself is asked once a minute.
const pauseLook = time.Second

// paused reports whether the topic is paused and its pause hasn't ended by itself.
func (t *topic) paused() bool {
	doc := t.document.Load()
	return doc.Topic.Paused && t.resumed.Load() != doc
}

// endPauses ends each pause of the topic at the time in its document, until ctx ends. A
// pause that has ended doesn't begin again when Redis's clock is set back.
func (t *topic) endPauses(ctx context.Context) {
	for ctx.Err() == nil {
		doc := t.document.Load()
		changed := func() bool { return t.document.Load() != doc }
		end := doc.Topic.PauseEnds()
		if end.IsZero() || t.resumed.Load() == doc {
			t.await(ctx, changed)
			continue
		}
		wait := pauseLook
		if now, err := t.store.Now(ctx); err == nil { // else Redis is away, and nothing is delivered anyway
			wait = min(wait, end.Sub(time.UnixMilli(now)))
		}
		if wait <= 0 {
			t.resumed.Store(doc)
			t.metrics.Paused.Set(t.paused())
			t.log.InfoContext(ctx, "the topic's pause has ended", "paused_until", doc.Topic.PausedUntil)
			t.changed.Fire()
			continue
		}
		waiting, cancel := context.WithTimeout(ctx, wait)
		t.await(waiting, changed)
		cancel()
	}
}
