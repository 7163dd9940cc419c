// Package apptest runs the examples against real servers.
package apptest

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/examples/internal/app"
	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/fleet/member"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// shards is the shard count of the topic.
const shards = 4

// Story is a running example.
type Story struct {
	*app.App
	t      *testing.T
	config string
	stored *shard.Topic

	mu   sync.Mutex
	text bytes.Buffer
	held map[string]chan struct{}
}

// Write records a line of the example's output. It blocks if Hold was called for that line.
func (s *Story) Write(p []byte) (int, error) {
	s.mu.Lock()
	n, err := s.text.Write(p)
	held := s.held[strings.TrimSpace(string(p))]
	s.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-s.t.Context().Done():
		}
	}
	return n, err
}

// Hold blocks the goroutine that prints this line until the caller calls release.
func (s *Story) Hold(line string) (release func()) {
	held := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[line] = held
	return func() { close(held) }
}

// Lines returns the lines printed so far.
func (s *Story) Lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(s.text.String()), "\n")
}

// Run starts the example with the given length of a minute, and stops it when the test
// ends. Its topic exists, but nothing is delivered before Serve.
func Run(t *testing.T, topic string, minute time.Duration, run func(context.Context, *app.App) error) *Story {
	t.Helper()
	s := &Story{t: t, config: filepath.Join(t.TempDir(), "config.yaml"), held: map[string]chan struct{}{}}
	// With a short timeout the client would repeat requests.
	cfg := app.Config{Topic: topic, Minute: minute, Patience: check.Hang, Out: s}
	cfg.Redis, cfg.Prefix = servertest.Redis(t)
	cfg.RabbitMQ = servertest.RabbitMQ(t)
	settings := fleet.Settings{RedisAddr: cfg.Redis, RedisPrefix: cfg.Prefix, RabbitMQURL: cfg.RabbitMQ,
		ShutdownTimeout: "5m"}
	settings.Topics = map[string]fleet.Topic{topic: {
		"shards": shards, "lease": "1h",
		"declare": map[string]any{"type": "direct", "queue": topic + ".due", "queue_type": "classic"},
	}}
	s.ok(fleet.WriteConfig(s.config, settings.Document()))
	rdb := redis.NewUniversalClient(servertest.RedisOptions(cfg.Redis))
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := shard.New(rdb, cfg.Prefix)
	s.ok(err)
	s.stored = store.Topic(topic)
	_, err = s.stored.Ensure(t.Context(), shards)
	s.ok(err)
	a, err := app.Open(cfg)
	s.ok(err)
	s.App = a
	t.Cleanup(func() { _ = a.Close() })
	s.start(func(ctx context.Context) error { return run(ctx, a) })
	return s
}

// Serve starts a scanner, which runs until the caller calls stop or the test ends.
func (s *Story) Serve() (stop func()) {
	return s.start(func(ctx context.Context) error { return member.Run(ctx, s.config) })
}

// start runs a part of the example until stop returns.
func (s *Story) start(part func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := part(ctx); err != nil && ctx.Err() == nil {
			s.t.Error(err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	s.t.Cleanup(stop)
	return stop
}

func (s *Story) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Parked returns the reasons of the parked tasks by ID, as `scanner parked ls` shows
// them.
func (s *Story) Parked() map[string]string {
	s.t.Helper()
	parked := map[string]string{}
	s.ok(admin.Parked{Topic: s.stored}.Each(s.t.Context(), func(r shard.Record) bool {
		parked[r.ID] = r.Reason
		return true
	}))
	return parked
}

// Replay makes the parked tasks due, as `scanner parked replay` does.
func (s *Story) Replay() {
	s.t.Helper()
	_, err := admin.Parked{Topic: s.stored}.Replay(s.t.Context(), "")
	s.ok(err)
}

// Payload returns the payload of a stored task, or "" if there is none.
func (s *Story) Payload(id string) string {
	s.t.Helper()
	stored, err := s.Get(s.t.Context(), s.Topic, id)
	if errors.Is(err, task.ErrNotFound) {
		return ""
	}
	s.ok(err)
	return string(stored.Payload)
}

// Eventually waits until the condition holds.
func (s *Story) Eventually(what string, is func() bool) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the output so far: %q", s.Lines())
		}
	}()
	check.Progress(s.t, what, func() int { return len(s.Lines()) }, is)
}

// Tells waits until the example has printed as many lines as want has, and fails the test
// unless they are equal.
func (s *Story) Tells(want ...string) {
	s.t.Helper()
	s.Eventually("the example's output", func() bool { return len(s.Lines()) >= len(want) })
	if got := s.Lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		s.t.Fatalf("the output is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
