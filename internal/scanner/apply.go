package scanner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// applied is what this member thinks of its configuration; guarded by
// Scanner.mu.
type applied struct {
	index  uint64
	errors map[string]string // by topic; "" is the source as a whole
	kept   map[string]bool   // topics whose error is of the document that Redis keeps
	heard  bool              // the source has answered, or failed to, at least once
	read   bool              // the source's documents were read at least once
}

// watch applies what the source says until ctx ends. Topics that the source
// doesn't name, or can't be asked for, start from the last good documents that
// Redis keeps.
func (s *Scanner) watch(ctx context.Context) error {
	err := s.cfg.Source.Watch(ctx, func(snap config.Snapshot) { s.apply(ctx, snap) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// apply puts a snapshot in force. Its documents were parsed and checked; one that
// is broken changes nothing but what is said of it.
func (s *Scanner) apply(ctx context.Context, snap config.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if snap.Err == nil && s.applied.errors[""] != "" {
		select {
		case s.sourceBack <- struct{}{}:
		default:
		}
	}
	if s.note(ctx, "", snap.Err); snap.Err == nil {
		for name, doc := range snap.Documents {
			s.applyDocument(ctx, name, doc)
		}
		s.markOrphans(ctx, snap)
		s.forgive(ctx, func(name string) bool {
			_, there := snap.Documents[name]
			return there || s.applied.kept[name]
		})
		s.applied.index, s.applied.read = snap.Index, true
		s.metrics.SetConfigApplied(snap.Index)
	}
	s.applied.heard = true
	if s.cfg.Register != nil {
		s.metrics.SetConsulUp(snap.Err == nil)
	}
	s.publishStatus()
}

func (s *Scanner) applyDocument(ctx context.Context, name string, doc config.Document) {
	delete(s.applied.kept, name)
	if s.note(ctx, name, doc.Err); doc.Err != nil {
		return
	}
	v := s.topics[name]
	if v == nil {
		v = s.serve(name, doc.Topic)
		s.log.InfoContext(ctx, "topic served", "topic", name, "shards", doc.Topic.Shards, "exchange", doc.Topic.Exchange)
	} else if !bytes.Equal(v.held(), doc.Raw) {
		for _, c := range config.Diff(*v.settings(), doc.Topic) {
			s.log.InfoContext(ctx, "topic setting applied", "topic", name, "key", c.Key, "old", c.Old, "new", c.New)
		}
		v.apply(doc.Topic)
	} else if !v.orphan.Load() {
		return
	}
	v.hold(doc.Raw)
	v.orphan.Store(false)
}

// note remembers what is wrong with a topic's document, or with the source, and
// says it once.
func (s *Scanner) note(ctx context.Context, name string, err error) {
	if err == nil {
		if s.applied.errors[name] != "" {
			delete(s.applied.errors, name)
			s.log.InfoContext(ctx, "configuration is good again", "topic", name)
		}
		return
	}
	if s.applied.errors[name] == err.Error() {
		return
	}
	s.applied.errors[name] = err.Error()
	s.metrics.ConfigError()
	s.log.ErrorContext(ctx, "configuration not applied, the last good one stays in force", "topic", name, "error", err)
}

// forgive forgets what was wrong with topics' documents that aren't there any more.
func (s *Scanner) forgive(ctx context.Context, there func(name string) bool) {
	for name := range s.applied.errors {
		if name != "" && !there(name) {
			delete(s.applied.errors, name)
			delete(s.applied.kept, name)
			s.log.InfoContext(ctx, "configuration that was not applied is gone", "topic", name)
		}
	}
}

// markOrphans finds topics whose documents vanished. They are served on with
// their last good settings until somebody sets or removes them.
func (s *Scanner) markOrphans(ctx context.Context, snap config.Snapshot) {
	for name, v := range s.topics {
		if _, there := snap.Documents[name]; !there && v.orphan.CompareAndSwap(false, true) {
			s.log.WarnContext(ctx, "topic has no document any more, it is served with its last settings", "topic", name)
		}
	}
}

// restore serves topics that Redis knows and the source doesn't, or can't tell,
// with their last good documents. It waits until the source was heard, or didn't
// answer for a while.
func (s *Scanner) restore(ctx context.Context) error {
	names, err := s.store.Topics(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.forgive(ctx, func(name string) bool { return !s.applied.kept[name] || slices.Contains(names, name) })
	s.mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, s.restoreTopic(ctx, name))
	}
	return errors.Join(errs...)
}

func (s *Scanner) restoreTopic(ctx context.Context, name string) error {
	if s.serves(name) {
		return nil
	}
	p, err := s.store.Topic(name).Placement(ctx)
	unknown := errors.Is(err, task.ErrUnknownTopic)
	if p.Phase == shard.Removed || unknown && s.hears() {
		return nil // without a document in the source it would not be made
	}
	if err != nil && !unknown {
		return err
	}
	raw, err := s.store.Topic(name).Document(ctx)
	if err != nil || raw == nil {
		return err
	}
	settings, err := config.ParseTopic(name, raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[name] != nil {
		return nil
	}
	if err != nil {
		if s.applied.errors[name] != "" && !s.applied.kept[name] {
			return nil // the source's own document is broken, too, and is what to mend
		}
		s.applied.kept[name] = true
		s.note(ctx, name, fmt.Errorf("last good document in Redis: %w", err))
		return nil
	}
	broken := s.applied.errors[name] != "" && !s.applied.kept[name]
	v := s.serve(name, settings)
	v.hold(raw)
	v.orphan.Store(s.heard() && !broken) // a broken document of the source's is one
	s.log.WarnContext(ctx, "topic served with the last good document that Redis keeps", "topic", name)
	return nil
}

// hears reports whether the source answers.
func (s *Scanner) hears() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard()
}

// heard is hears; s.mu is held.
func (s *Scanner) heard() bool { return s.applied.heard && s.applied.errors[""] == "" }

func (s *Scanner) serves(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topics[name] != nil
}

// reap stops serving topics that were removed from Redis and have no document.
func (s *Scanner) reap(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, v := range s.topics {
		if _, removed := v.known(); !removed || !v.orphan.Load() {
			continue
		}
		delete(s.topics, name)
		v.stopped.Store(true)
		s.log.InfoContext(ctx, "topic removed", "topic", name)
		s.support.Go(func() error { return s.retire(v) })
	}
}

// publishStatus hands over what this member thinks of its configuration, in the place
// of what was handed over before and is not written yet; s.mu is held.
func (s *Scanner) publishStatus() {
	if s.cfg.Register == nil {
		return
	}
	note, err := json.Marshal(struct {
		Time    time.Time         `json:"time"`
		Applied uint64            `json:"config_applied_index"`
		Errors  map[string]string `json:"errors"`
	}{time.Now().UTC(), s.applied.index, s.applied.errors})
	if err != nil {
		return
	}
	select {
	case <-s.notes:
	default:
	}
	s.notes <- note
}

// tell writes notes to Consul until ctx ends, one after the other, so that the newest
// is what stays.
func (s *Scanner) tell(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case note := <-s.notes:
			s.tellOnce(ctx, note)
		}
	}
}

func (s *Scanner) tellOnce(parent context.Context, note []byte) {
	ctx, cancel := context.WithTimeout(parent, registerTimeout)
	defer cancel()
	if err := s.cfg.Register.WriteStatus(ctx, s.cfg.Instance, note); err != nil && parent.Err() == nil {
		s.log.WarnContext(ctx, "status not written to consul", "error", err)
	}
}
