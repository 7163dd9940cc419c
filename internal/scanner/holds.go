package scanner

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
)

const (
	// holdInterval is the time between two looks at which topics are paused in Redis.
	holdInterval = time.Second
	// holdTimeout bounds one of them.
	holdTimeout = 2 * time.Second
)

// holds knows which topics are paused in Redis. While Redis can't be read, it keeps what it
// knows.
type holds struct {
	store *shard.Store
	beat  wake.Beat
	known atomic.Pointer[map[string]registry.Hold] // those in force, by topic; nil: none so far
	tell  func(context.Context)                    // tells the topics that known is new
}

// watch looks until ctx ends.
func (k *holds) watch(ctx context.Context) {
	for ctx.Err() == nil {
		k.read(ctx)
		retry.Sleep(ctx, k.beat.Until(holdInterval))
	}
}

// read looks once. Heartbeats report that Redis is away, and doctor that a right is missing.
func (k *holds) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	found, err := k.store.Registry().Holds(ctx)
	if err != nil {
		return
	}
	for topic, h := range found {
		now, err := k.store.Topic(topic).Now(ctx)
		if err != nil {
			return
		}
		if h.Ended(time.UnixMilli(now)) {
			delete(found, topic)
		}
	}
	k.known.Store(&found)
	k.tell(ctx)
}

// of returns the hold of a topic; nil if it has none.
func (k *holds) of(topic string) *registry.Hold {
	known := k.known.Load()
	if known == nil {
		return nil
	}
	h, there := (*known)[topic]
	if !there {
		return nil
	}
	return &h
}

// holdTopics puts the holds in force.
func (s *Scanner) holdTopics(ctx context.Context) {
	for _, v := range s.all() {
		if v.topic.hold(ctx, s.holds.of(v.topic.name)) {
			s.held.Store(true)
		}
	}
}

// hold pauses the topic, or with nil ends that. It reports whether that is news.
func (t *topic) hold(ctx context.Context, h *registry.Hold) (news bool) {
	if !t.inForce.Hold(h) {
		return false
	}
	if h == nil {
		t.log.InfoContext(ctx, "the topic isn't paused in redis any more")
		return true
	}
	t.log.WarnContext(ctx, "the topic is paused in redis", "until", h.Until, "reason", h.Reason)
	return true
}
