//go:build measure

package console

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// TestMeasureAMillionTasks: a search finds one of them, by its whole ID or its begin, and all
// pages come in time. The console's reading costs Redis little, whatever the number of viewers.
func TestMeasureAMillionTasks(t *testing.T) {
	const topics, all = 100, 1_000_000
	server := servertest.OwnRedis(t)
	r := fixture.At(t, server.Addr(), "p")
	topic, p := r.Serve(t, 16)
	for i := 1; i < topics; i++ {
		_, err := r.Store.Topic(fmt.Sprintf("topic-%02d", i)).Ensure(t.Context(), 4)
		check.OK(t, err)
	}
	const batch = 5000
	for from := 0; from < all; from += batch {
		ids := make([]string, batch)
		for i := range ids {
			ids[i] = fmt.Sprintf("o-%07d", from+i)
		}
		in := task.In(time.Hour + time.Duration(from)*time.Second/10)
		fixture.StoreUnder(t, topic, p, fixture.Entries(in, []byte("\x00a"), ids...)...)
	}
	s := serve(t, r.Store, Config{Settings: settings()})
	for _, c := range []struct {
		path, shows string
		limit       time.Duration
	}{
		{"/tasks?topic=orders&id=o-0777777", `data-row="o-0777777"`, 8 * time.Second},
		{"/tasks?topic=orders&id=o-099999", `data-row="o-0999991"`, 8 * time.Second},
		{"/task?topic=orders&id=o-0777777", "<dt>Shard</dt>", 100 * time.Millisecond},
		{"/topic/orders", `next week <span class="of">`, time.Second},
		{"/", `id="topic-orders"`, 8 * time.Second}, {"/", `id="topic-orders"`, 100 * time.Millisecond},
	} {
		start := time.Now()
		_, page, _ := s.ask(http.MethodGet, c.path, nil)
		took := time.Since(start)
		t.Logf("%s: %s, %d bytes", c.path, took, len(page))
		if !strings.Contains(page, c.shows) || strings.Contains(page, `role="alert"`) || took > c.limit {
			t.Errorf("%s took %s, limit %s:\n%.3000s", c.path, took, c.limit, page)
		}
	}
	samples := func() int {
		s.console.samples.mu.Lock()
		defer s.console.samples.mu.Unlock()
		return len(s.console.samples.taken)
	}
	idle := perSecond(t, r, func() bool { return samples() > 2 })
	one := perSecond(t, r, s.readings(1)) - idle
	eleven := perSecond(t, r, s.readings(10)) - idle
	t.Logf("Redis takes %s of CPU a second, %s more with a viewer, %s more with 11", idle, one, eleven)
	if limit := time.Millisecond; one > limit || eleven > limit {
		t.Errorf("the limit is %s", limit)
	}
}

// readings opens more streams and returns a condition that holds after three readings.
func (s *site) readings(viewers int) func() bool {
	s.t.Helper()
	for range viewers {
		wait.Receive(s.t, "an event", s.events(s.t.Context(), "/stream/"))
	}
	first, _ := s.console.reader.latest()
	return func() bool {
		now, _ := s.console.reader.latest()
		return now.number >= first.number+3
	}
}

// perSecond returns the CPU time that Redis uses in a second until a condition holds.
func perSecond(t *testing.T, r *fixture.Redis, until func() bool) time.Duration {
	t.Helper()
	before, began := used(t, r), time.Now()
	wait.For(t, "the end of the measurement", until)
	return time.Duration(float64(used(t, r)-before) / time.Since(began).Seconds())
}

// used returns the CPU time that Redis has used.
func used(t *testing.T, r *fixture.Redis) (sum time.Duration) {
	t.Helper()
	info, err := r.Client.Info(t.Context(), "cpu").Result()
	check.OK(t, err)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			check.OK(t, err)
			sum += time.Duration(seconds * float64(time.Second))
		}
	}
	return sum
}
