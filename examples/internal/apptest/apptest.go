// Package apptest runs the examples against real servers.
package apptest

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/examples/internal/app"
	"github.com/duefleet/duefleet/internal/scanner"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/stack/stacktest"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/fleet/member"
)

// patience bounds whatever a test waits for.
const patience = 30 * time.Second

// Story is one example at work.
type Story struct {
	*app.App
	t *testing.T

	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes what the example says.
func (s *Story) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// Lines said so far.
func (s *Story) Lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(s.text.String()), "\n")
}

// Run starts a scanner and the example, whose minutes last that long; it ends with
// the test.
func Run(t *testing.T, topic string, minute time.Duration, run func(context.Context, *app.App) error) *Story {
	t.Helper()
	s := &Story{t: t}
	cfg := app.Config{Topic: topic, Minute: minute, Out: s}
	cfg.Redis, cfg.Prefix = stacktest.Redis(t)
	cfg.RabbitMQ = stacktest.RabbitMQ(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	settings := fleet.Settings{RedisAddr: cfg.Redis, RedisPrefix: cfg.Prefix, RabbitMQURL: cfg.RabbitMQ}
	settings.Topics = map[string]fleet.Topic{topic: {
		"declare": map[string]any{"type": "direct", "queue": topic + ".due", "queue_type": "classic"},
	}}
	s.ok(fleet.WriteConfig(path, settings.Document()))
	a, err := app.Open(cfg)
	s.ok(err)
	s.App = a

	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	start := func(part func(context.Context) error) {
		parts.Go(func() {
			if err := part(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		parts.Wait()
		_ = a.Close()
	})
	start(func(ctx context.Context) error { return member.Run(ctx, path) })
	s.Eventually("the topic is served", func() bool {
		_, err := s.topic().Placement(t.Context())
		return err == nil
	})
	start(func(ctx context.Context) error { return run(ctx, a) })
	return s
}

func (s *Story) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *Story) topic() *shard.Topic {
	rdb := redis.NewUniversalClient(stacktest.RedisOptions(s.Redis))
	s.t.Cleanup(func() { _ = rdb.Close() })
	store, err := shard.New(rdb, s.Prefix)
	s.ok(err)
	return store.Topic(s.Topic)
}

// Parked are the parked tasks, as `scanner parked ls` shows them: the reason by ID.
func (s *Story) Parked() map[string]string {
	s.t.Helper()
	parked := map[string]string{}
	s.ok(scanner.Parked{Topic: s.topic()}.Each(s.t.Context(), func(r shard.Record) bool {
		parked[r.ID] = r.Reason
		return true
	}))
	return parked
}

// Replay makes parked tasks due, as `scanner parked replay` does.
func (s *Story) Replay() {
	s.t.Helper()
	_, err := scanner.Parked{Topic: s.topic()}.Replay(s.t.Context(), "")
	s.ok(err)
}

// Eventually waits until it is so.
func (s *Story) Eventually(what string, is func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for !is() {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited %v in vain: %s; the story so far: %q", patience, what, s.Lines())
		}
		<-time.After(5 * time.Millisecond)
	}
}

// Tells waits until the example has said so many lines, and ends the test unless
// they are these.
func (s *Story) Tells(want ...string) {
	s.t.Helper()
	s.Eventually("the story is told", func() bool { return len(s.Lines()) >= len(want) })
	if got := s.Lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		s.t.Fatalf("the story is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
