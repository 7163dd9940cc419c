package scanner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/test/wait"
)

// slowSave holds up the first save of a document on its way to Redis.
type slowSave struct {
	first atomic.Bool
	begun chan struct{}
	letGo chan struct{}
	ended atomic.Int64
}

func (s *slowSave) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *slowSave) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "set" || !strings.Contains(cmd.String(), ":document:") {
			return next(ctx, cmd)
		}
		if s.first.CompareAndSwap(false, true) {
			close(s.begun)
			<-s.letGo
		}
		defer s.ended.Add(1)
		return next(ctx, cmd)
	}
}

func (s *slowSave) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestTheNewestDocumentIsWhatRedisKeeps(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders", "rate: 1")}, nil)
	slow := &slowSave{begun: make(chan struct{}), letGo: make(chan struct{})}
	l.rdb.AddHook(slow)
	l.start()
	wait.Closed(t, "the first document to be saved", slow.begun)
	l.write(map[string]string{"orders": declaring("orders", "rate: 2")})
	wait.For(t, "the second to be applied", func() bool { return l.served("orders").settings().Rate == 2 })
	close(slow.letGo)
	wait.For(t, "two saves", func() bool { return slow.ended.Load() >= 2 })
	doc, err := l.topic("orders").Document(t.Context())
	l.ok(err)
	if !strings.Contains(string(doc), "rate: 2") {
		t.Errorf("Redis keeps %s, want the second document", doc)
	}
}

// brokenSource has a mistake in each of its documents.
type brokenSource struct{ config.Source }

var errBroken = errors.New("orders:1: shards: must be 1 to 4096; got 0")

func (s brokenSource) Watch(ctx context.Context, apply func(config.Snapshot)) error {
	return s.Source.Watch(ctx, func(snap config.Snapshot) {
		snap.Documents = maps.Clone(snap.Documents)
		for name, doc := range snap.Documents {
			doc.Err = errBroken
			snap.Documents[name] = doc
		}
		apply(snap)
	})
}

// TestATopicWithABrokenDocumentIsNoOrphan: a scanner that starts beside a broken
// document serves the topic by the one that Redis keeps, and says what is to be
// mended: not that there is no document.
func TestATopicWithABrokenDocumentIsNoOrphan(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": declaring("orders")}, func(s config.Source) config.Source { return brokenSource{s} })
	orders := l.topic("orders")
	_, err := orders.Ensure(t.Context(), 2)
	l.ok(err)
	l.ok(orders.SaveDocument(t.Context(), []byte(declaring("orders", "shards: 2"))))
	l.start()
	if l.served("orders").orphan.Load() {
		t.Error("it is an orphan")
	}
	wait.For(t, "status to name the mistake, and nothing else", func() bool {
		s, err := operate.ReadStatus(t.Context(), l.store, "orders")
		l.ok(err)
		notes := s.Topics[0].Notes
		if strings.Contains(fmt.Sprint(notes), "orphan") {
			t.Fatalf("notes: %q", notes)
		}
		return slices.Contains(notes, errBroken.Error())
	})
}
