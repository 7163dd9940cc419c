//go:build measure

package e2e_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

const (
	// scrapedShards is the largest M there is.
	scrapedShards = 4096
	// scrapes is the number of concurrent scrapes.
	scrapes = 60
)

// TestMeasureScrapes: sixty concurrent scrapes of a scanner with a topic of 4,096 shards
// take as much memory as one. This holds for one series per shard, and for one series per
// topic, the default.
func TestMeasureScrapes(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	for _, c := range []struct {
		name   string
		series int // admin.shard_series
		lines  int // of duefleet_pending_tasks
		most   int // MB that the scrapes may take
	}{
		{"as a whole", 64, 1, 20},
		{"one by one", scrapedShards, scrapedShards, 60},
	} {
		t.Run(c.name, func(t *testing.T) { //nolint:paralleltest // as above
			w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders",
				fleet.Topic{"shards": scrapedShards, "workers": 2})})
			w.settings.More = map[string]fleet.Topic{"admin": {"shard_series": c.series}}
			w.write()
			w.start(1)
			s := w.scanners[0]
			var page string
			check.Until(t, "the shards to be exported", rarely(func() bool {
				page = get(s, "/metrics")
				return strings.Count(page, "\nduefleet_pending_tasks{") == c.lines
			}))
			before := residentPeak(t, s)
			var all errgroup.Group
			for range scrapes {
				all.Go(func() error { return s.Get(t.Context(), "/metrics", io.Discard) })
			}
			check.OK(t, all.Wait())
			after := residentPeak(t, s)
			t.Logf("%d scrapes at once of %d bytes each: the scanner had %d MB at most before, %d MB with them", scrapes,
				len(page), before, after)
			if after-before > c.most {
				t.Errorf("they took %d MB, want at most %d", after-before, c.most)
			}
			w.stop()
		})
	}
}

// residentPeak returns a scanner's peak resident memory in MB.
func residentPeak(t *testing.T, s *fleet.Scanner) int {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID()), "status"))
	check.OK(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes int
	_, err = fmt.Sscan(rest, &kilobytes)
	check.OK(t, err)
	return kilobytes >> 10
}
