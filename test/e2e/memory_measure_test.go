//go:build measure && linux

package e2e_test

import (
	"bufio"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestMeasureMemoryOfLargePayloads: payloads are at the size limit and the broker
// confirms slowly. in_flight_bytes then limits a scanner's memory, not the window.
func TestMeasureMemoryOfLargePayloads(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	const (
		each   = 100 // tasks of a topic
		budget = 64 << 20
	)
	for _, c := range []struct{ topics, most, resident int }{
		{1, budget / 4, 150},
		{6, budget, 200},
	} {
		t.Run(fmt.Sprint(c.topics), func(t *testing.T) { //nolint:paralleltest // as above
			topics := map[string]fleet.Topic{}
			var queues []string
			for i := range c.topics {
				name := fmt.Sprint("large-", i)
				topics[name] = fleet.DeclaredTopic(name, nil)
				queues = append(queues, name+".due")
			}
			w := newFixture(t, topics)
			u, err := url.Parse(w.settings.RabbitMQURL)
			check.OK(t, err)
			u.Host = farAway(t, u.Host, time.Second)
			s, err := fleet.StartScanner(check.Context(t), fleet.ScannerConfig{
				Binary: programs.Scanner, Config: w.config, Dir: w.dir, Name: "scanner-1",
				Env: []string{"DUEFLEET_RABBITMQ_URLS=" + u.String()},
			})
			check.OK(t, err)
			w.scanners = append(w.scanners, s)
			before := residentPeak(t, s)
			w.consume(queues...)
			due := time.Now().Add(5 * time.Second)
			for name := range topics {
				w.schedule(orders(name, name, each, due, time.Millisecond, task.DefaultMaxPayload)...)
			}
			most := 0
			check.Progress(t, "all tasks", w.recorder.Ledger.Count, rarely(func() bool {
				most = max(most, inFlight(t, get(s, "/metrics")))
				return w.recorder.Ledger.Count() == c.topics*each
			}))
			after := residentPeak(t, s)
			t.Logf("%d topics: %d MB in flight at most, %d payloads; the scanner had %d MB at most before, %d MB with them",
				c.topics, most>>20, most/task.DefaultMaxPayload, before, after)
			if most > c.most+c.topics*task.DefaultMaxPayload {
				t.Errorf("%d bytes were in flight, want at most %d", most, c.most)
			}
			if after > c.resident {
				t.Errorf("the scanner took %d MB, want at most %d", after, c.resident)
			}
			w.stop()
		})
	}
}

// inFlight adds up the bytes in flight of all topics, from a scanner's metrics.
func inFlight(t *testing.T, page string) (total int) {
	t.Helper()
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && strings.HasPrefix(name, "duefleet_inflight_bytes{") {
			n, err := strconv.ParseFloat(value, 64)
			check.OK(t, err)
			total += int(n)
		}
	}
	return total
}
