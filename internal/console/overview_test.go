package console

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/heartbeat"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// contains checks that a page has all the parts.
func contains(t *testing.T, page string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %q:\n%s", part, page)
		}
	}
}

// TestTheOverviewOfAFleet: problems with their advice come first, then topics with their
// counts, then the scanners. A real scanner delivers meanwhile.
func TestTheOverviewOfAFleet(t *testing.T) {
	t.Parallel()
	program := scannerProgram(t)
	r := fixture.New(t)
	config := writeFile(t, fmt.Sprintf("redis: {addrs: ['%s'], prefix: '%s'}\nrabbitmq: {urls: ['%s']}\n"+
		"topics: {orders: {shards: 2, declare: {queue: orders}}, mails: {shards: 1, paused: true, declare: {queue: mails}}}",
		r.Addr, r.Prefix, servertest.RabbitMQ(t)))
	scanner, err := fleet.StartScanner(check.Context(t), fleet.ScannerConfig{Binary: program, Config: config,
		Dir: t.TempDir()})
	check.OK(t, err)
	t.Cleanup(func() {
		if err := scanner.Kill(); err != nil {
			t.Error(err)
		}
	})
	fixture.Store(t, r.Orders(), fixture.Entries(task.In(time.Hour), []byte("\x00a"), "a", "b")...)
	fixture.Store(t, r.Orders(), fixture.Entries(task.In(0), []byte("\x00a"), "now")...)
	s := serve(t, r.Store, Config{Settings: settings()})
	var page string
	check.Until(t, "the overview to show a fleet that has started, with its counts", func() bool {
		_, page, _ = s.ask(http.MethodGet, "/", nil)
		return strings.Contains(page, `<td class="n">2</td><td class="n">0</td><td class="n">0</td>`) &&
			strings.Contains(page, `class="state degraded">paused`) && strings.Contains(page, ">live<")
	})
	contains(t, page, `<span class="badge degraded">degraded</span>`, `<tr id="topic-orders"`, `<tr id="topic-mails"`,
		"topic_paused", "resume the topic when the pause has no more reason", "docs/alerts.md#duefleettopicpaused")
	if strings.Index(page, "problems-title") > strings.Index(page, "topics-title") {
		t.Error("topics come before problems")
	}
	if _, page, _ = s.ask(http.MethodGet, "/?q=MAIL", nil); !strings.Contains(page, `data-row="orders" tabindex="-1" hidden`) ||
		strings.Contains(page, `data-row="mails" tabindex="-1" hidden`) {
		t.Error("the search doesn't hide the other topic")
	}
}

// TestHostileTextsAreShown: names and texts from Redis are never markup.
func TestHostileTextsAreShown(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 1)
	const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>`
	check.OK(t, r.Client.SAdd(t.Context(), r.Prefix+":topics", hostile).Err())
	p := problem.New(problem.RouteRefused, "orders", hostile)
	p.Kind, p.Severity, p.Advice = hostile, hostile, hostile
	heartbeat.Start(t, r.Store, balance.Member{Instance: hostile, Version: hostile, Problems: []problem.Problem{p}})
	s := serve(t, r.Store, Config{Settings: settings()})
	status, page, _ := s.ask(http.MethodGet, "/?q="+"%22%3E%3Cscript%3E", nil)
	check.Equal(t, "status", status, http.StatusOK)
	contains(t, page, "&lt;script&gt;alert(1)&lt;/script&gt;")
	if strings.Contains(page, "<script>") || strings.Contains(page, "<img") {
		t.Errorf("a text became markup:\n%s", page)
	}
}

// TestTheOverviewWithoutRedis: the page says what is wrong.
func TestTheOverviewWithoutRedis(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	r := fixture.At(t, server.Addr(), "p")
	r.Serve(t, 1)
	s := serve(t, r.Store, Config{Settings: settings()})
	_, page, _ := s.ask(http.MethodGet, "/", nil)
	contains(t, page, `id="topic-orders"`)
	check.OK(t, server.Kill())
	check.Until(t, "the page to say that Redis is away", func() bool {
		_, page, _ = s.ask(http.MethodGet, "/", nil)
		return strings.Contains(page, "Redis can&#39;t be read") || strings.Contains(page, "Redis can't be read")
	})
	contains(t, page, `<span class="badge broken">broken</span>`, "What follows was read at", `id="topic-orders"`)
}

// BenchmarkOverview is the page of 100 topics while a reading is there.
func BenchmarkOverview(b *testing.B) {
	r := fixture.New(b)
	for i := range 100 {
		_, err := r.Store.Topic(fmt.Sprintf("topic-%03d", i)).Ensure(b.Context(), 4)
		check.OK(b, err)
	}
	s := serve(b, r.Store, Config{Settings: settings()})
	defer s.console.reader.watch(b.Context())()
	for b.Loop() {
		_, page, _ := s.ask(http.MethodGet, "/", nil)
		check.Equal(b, "topics", strings.Count(page, "<tr id=\"topic-"), 100)
	}
}

// TestViewersShareOneReading: ten streams get the same readings, and the console reads
// nothing once they are gone.
func TestViewersShareOneReading(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	topic, _ := r.Serve(t, 1)
	s := serve(t, r.Store, Config{Settings: settings()})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var streams []<-chan string
	for range 10 {
		streams = append(streams, s.events(ctx, "/stream/"))
	}
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), []byte("\x00a"), "a")...)
	for _, lines := range streams {
		for line := ""; !strings.Contains(line, `<td class="n">1</td><td class="n">0</td>`); {
			line = check.Receive(t, "an event with the task", lines)
		}
	}
	now, _ := s.console.reader.latest()
	began := now.number
	check.Until(t, "three more readings", func() bool { now, _ = s.console.reader.latest(); return now.number >= began+3 })
	s.console.reader.mu.Lock()
	watchers := s.console.reader.watchers
	s.console.reader.mu.Unlock()
	check.Equal(t, "watchers", watchers, 10)
	leave()
	check.Until(t, "the streams to end", func() bool { return s.console.streams.Load() == 0 })
	check.Until(t, "the readings to end", func() bool { return !s.console.reader.busy() })
}

// TestManyTopicsAreReadLessOften, so that the load on Redis has a limit.
func TestManyTopicsAreReadLessOften(t *testing.T) {
	t.Parallel()
	for topics, want := range map[int]time.Duration{0: 5 * time.Second, 20: 5 * time.Second, 100: 25 * time.Second} {
		now := reading{content: content{Status: admin.Status{Topics: make([]admin.TopicStatus, topics)}}}
		check.Equal(t, fmt.Sprintf("pause after %d topics", topics), now.pause(readEvery), want)
	}
}

// TestTheConsoleStopsWithStreamsOpen within two seconds.
func TestTheConsoleStopsWithStreamsOpen(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	s := serve(t, r.Store, Config{Settings: settings()})
	lines := s.events(t.Context(), "/stream/")
	check.Receive(t, "an event", lines)
	start := time.Now()
	s.end()
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
}
