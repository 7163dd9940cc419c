package scanner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
)

// served is a topic that is being served.
type served struct {
	topic *topic
	stop  context.CancelFunc // ends the workers
	done  chan struct{}      // closed when they have ended
	end   context.CancelFunc // ends the publisher and the settler, which outlast the workers
}

// all returns the topics that are served, in a list that must not be changed.
func (s *Scanner) all() []*served {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed == nil {
		s.listed = slices.Collect(maps.Values(s.topics))
	}
	return s.listed
}

// served returns a topic; nil if it isn't served.
func (s *Scanner) served(topic string) *served {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topics[topic]
}

// serve serves a topic by a document, or gives a topic that is served a newer one. The workers
// run until working ends, the publisher and the settler until serving ends.
func (s *Scanner) serve(working context.Context, doc config.Document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.topics[doc.Name]; v != nil {
		before := *v.topic.inForce.Settings()
		v.topic.apply(doc)
		s.warnLeft(working, doc.Name, before)
		return
	}
	v := &served{topic: s.newTopic(doc), done: make(chan struct{})}
	working, v.stop = context.WithCancel(working)
	var serving context.Context
	serving, v.end = s.serving()
	v.topic.settler.Start(serving)
	v.topic.publisher.Start(serving)
	wait := v.topic.begin(working)
	context.AfterFunc(working, func() {
		wait()
		close(v.done)
	})
	s.topics[doc.Name], s.listed = v, nil
}

// placement returns what is known of the placement of a served topic, and whether the topic was
// removed from Redis.
func (s *Scanner) placement(topic string) (p shard.Placement, removed bool) {
	return s.served(topic).topic.resharder.Known()
}

// retire ends a topic that is no longer served, in the background.
func (s *Scanner) retire(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.topics[topic]
	delete(s.topics, topic)
	s.listed = nil
	s.support.Go(func() error {
		ctx, cancel := s.serving()
		defer cancel()
		return s.endTopic(ctx, v)
	})
}

// endTopic ends a topic. It waits for what is in flight, as long as that takes. Then it
// closes the channel, so that nothing that the operator deletes is declared again. If the
// topic was created again meanwhile, its metrics stay.
func (s *Scanner) endTopic(ctx context.Context, v *served) error {
	err := v.shutDown(ctx, 0)
	v.end()
	v.wait()
	v.topic.window.Close()
	v.topic.leaveOutbound()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[v.topic.name] == nil {
		s.metrics.set.Forget(v.topic.name)
	}
	return err
}

// keepAgain makes all topics store their documents again, because Redis lost its data. While
// a topic isn't made again, it counts as removed, and its document waits.
func (s *Scanner) keepAgain() {
	for _, v := range s.all() {
		v.topic.inForce.Lost()
	}
}

// wait waits until everything has ended. Call it once both contexts have ended.
func (v *served) wait() {
	v.topic.publisher.Wait()
	v.topic.settler.Wait()
	<-v.done
}

// shutDown ends the workers and lets what is in flight end. When ctx ends, it releases
// the rest, which takes up to rest more.
func (v *served) shutDown(ctx context.Context, rest time.Duration) error {
	t := v.topic
	t.stopped.Store(true)
	v.stop()
	select {
	case <-v.done:
	case <-ctx.Done():
	}
	if err := t.publisher.Drain(ctx); err != nil {
		t.log.WarnContext(ctx, "messages not confirmed in time, tasks released", "error", err)
	}
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), end.Add(rest))
		defer cancel()
	}
	if err := t.settler.Drain(ctx); err != nil {
		return fmt.Errorf("settle topic %s: %w: its tasks in flight are delivered again when their leases end", t.name, err)
	}
	return nil
}
