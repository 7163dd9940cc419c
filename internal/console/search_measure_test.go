//go:build measure

package console

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

var measuredTasks = flag.Int("tasks", 1_000_000, "how many tasks TestMeasureAMillionTasks stores")

// TestMeasureAMillionTasks: a search finds one of them, by its whole ID or its begin, and all
// pages come in time. The console's reading costs Redis little, whatever the number of viewers.
func TestMeasureAMillionTasks(t *testing.T) {
	const topics = 100
	all := *measuredTasks
	server := servertest.OwnRedis(t, "--appendonly", "no", "--save", "")
	r := fixture.At(t, server.Addr(), "p")
	_, p := r.Serve(t, 16)
	for i := 1; i < topics; i++ {
		_, err := r.Store.Topic(fmt.Sprintf("topic-%02d", i)).Ensure(t.Context(), 4)
		check.OK(t, err)
	}
	start := time.Now()
	storeMany(t, r, p, all, start.Add(time.Hour))
	t.Logf("%d tasks were stored in %s", all, time.Since(start))
	start = time.Now()
	alone := costs(t, r, "without a console", func() bool { return time.Since(start) > 30*time.Second })
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
	costs(t, r, "nobody looks", func() bool { return samples() > 2 })
	for _, viewers := range []int{1, 9} { // one, and then ten
		more := costs(t, r, fmt.Sprint(viewers, " more viewers"), s.readings(viewers)) - alone
		t.Logf("Redis takes %s of CPU a second more than without a console", more)
		if limit := time.Millisecond; more > limit {
			t.Errorf("the limit is %s", limit)
		}
	}
}

// readings opens more streams and returns a condition that holds after two readings.
func (s *site) readings(viewers int) func() bool {
	s.t.Helper()
	for range viewers {
		check.Receive(s.t, "an event", s.events(s.t.Context(), "/stream/"))
	}
	first, _ := s.console.reader.latest()
	return func() bool {
		now, _ := s.console.reader.latest()
		return now.number >= first.number+2
	}
}

// costs returns the CPU time that Redis uses in a second until a condition holds. It logs the
// commands that take the most of it.
func costs(t *testing.T, r *fixture.Redis, who string, until func() bool) time.Duration {
	t.Helper()
	cpu, commands, began := used(t, r), usedBy(t, r), time.Now()
	check.Until(t, "the end of the measurement", until)
	seconds := time.Since(began).Seconds()
	perSecond := time.Duration(float64(used(t, r)-cpu) / seconds)
	t.Logf("%s: Redis takes %s of CPU a second, over %.0f s", who, perSecond, seconds)
	after := usedBy(t, r)
	for name := range after {
		after[name] -= commands[name]
	}
	most := func(a, b string) int { return cmp.Compare(after[b], after[a]) }
	for _, name := range slices.SortedFunc(maps.Keys(after), most) {
		if after[name] > 0 {
			t.Logf("  %s: %.0f µs/s", name, after[name]/seconds)
		}
	}
	return perSecond
}

// usedBy returns the time in µs that each command has taken. A script's time is in its call, and
// the commands that it calls count again.
func usedBy(t *testing.T, r *fixture.Redis) map[string]float64 {
	t.Helper()
	info, err := r.Client.Info(t.Context(), "commandstats").Result()
	check.OK(t, err)
	micros := map[string]float64{}
	for _, match := range regexp.MustCompile(`cmdstat_(\S+?):calls=\d+,usec=(\d+)`).FindAllStringSubmatch(info, -1) {
		micros[match[1]], err = strconv.ParseFloat(match[2], 64)
		check.OK(t, err)
	}
	return micros
}
