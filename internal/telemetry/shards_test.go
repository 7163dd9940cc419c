package telemetry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/test/check"
)

func TestShardsAreAskedAtScrapeTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, m := newMetrics(t)
		addShards(t, reg, m, func(context.Context) ([]ShardStat, error) {
			return []ShardStat{
				{Topic: "orders", Shard: 0, Pending: 7, Backlog: 3, Leased: 2, Parked: 1, OldestDue: 1500 * time.Millisecond},
				{Topic: "orders", Shard: 1, OldestDue: -time.Second},
			}, nil
		})
		check.Series(t, reg, map[string]float64{
			`pending_tasks{shard=0,topic=orders}`:      7,
			`backlog_tasks{shard=0,topic=orders}`:      3,
			`leased_tasks{shard=0,topic=orders}`:       2,
			`parked_tasks{shard=0,topic=orders}`:       1,
			`oldest_due_seconds{shard=0,topic=orders}`: 1.5,
			`oldest_due_seconds{shard=1,topic=orders}`: 0,
		})
	})
}

func TestShardsOfALargeTopicAreOneSeries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, m := newMetrics(t) // has series for four shards
		addShards(t, reg, m, func(context.Context) ([]ShardStat, error) {
			return []ShardStat{
				{Topic: "small", Shard: 3, Of: 4, Pending: 1},
				{Topic: "large", Shard: 0, Of: 5, Pending: 7, Backlog: 3, Leased: 2, Parked: 1, OldestDue: 2 * time.Second},
				{Topic: "large", Shard: 4, Of: 5, Pending: 70, Backlog: 30, Leased: 20, Parked: 10, OldestDue: time.Second},
				{Topic: "large", Shard: 4, Of: 5, Pending: 700},
			}, nil
		})
		check.Series(t, reg, map[string]float64{
			`pending_tasks{shard=3,topic=small}`:        1,
			`pending_tasks{shard=all,topic=large}`:      77,
			`backlog_tasks{shard=all,topic=large}`:      33,
			`leased_tasks{shard=all,topic=large}`:       22,
			`parked_tasks{shard=all,topic=large}`:       11,
			`oldest_due_seconds{shard=all,topic=large}`: 2,
		})
		_, all := check.Metrics(t, reg)
		for series := range all {
			if strings.Contains(series, "{shard=") && strings.HasSuffix(series, "topic=large}") &&
				!strings.Contains(series, "shard=all") {
				t.Errorf("%s is exported beside shard=all", series)
			}
		}
	})
}

func TestShardReportedTwiceFailsNoScrape(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, m := newMetrics(t)
		addShards(t, reg, m, func(context.Context) ([]ShardStat, error) {
			return []ShardStat{{Topic: "orders", Pending: 1}, {Topic: "orders", Pending: 2}}, nil
		})
		check.Series(t, reg, map[string]float64{`pending_tasks{shard=0,topic=orders}`: 1})
	})
}

func TestFailingSourceDropsItsSeriesAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, m := newMetrics(t)
		var down atomic.Bool
		log := addShards(t, reg, m, func(context.Context) ([]ShardStat, error) {
			if down.Load() {
				return nil, errors.New("connection refused")
			}
			return []ShardStat{{Topic: "orders", Pending: 5}}, nil
		})
		wantShards(t, reg, true)

		down.Store(true)
		for range 3 {
			time.Sleep(statsKeep)
			wantShards(t, reg, false)
		}
		check.Series(t, reg, map[string]float64{`errors_total{operation=shard_stats}`: 3, `redis_up{}`: 0})

		down.Store(false)
		time.Sleep(statsKeep)
		wantShards(t, reg, true)
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "connection refused") {
			t.Errorf("want one line when it fails and one when it is over, got %q", log)
		}
	})
}

func TestSlowSourceHoldsAScrapeTwoSecondsAndIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, m := newMetrics(t)
		var calls atomic.Int32
		hang := make(chan struct{})
		addShards(t, reg, m, func(context.Context) ([]ShardStat, error) { // ignores its context
			calls.Add(1)
			<-hang
			return []ShardStat{{Topic: "orders", Pending: 5}}, nil
		})
		began := time.Now()
		wantShards(t, reg, false)
		if took := time.Since(began); took != statsTimeout {
			t.Errorf("the scrape took %s, want %s", took, statsTimeout)
		}
		time.Sleep(time.Minute)
		began = time.Now()
		wantShards(t, reg, false)
		if took := time.Since(began); took != 0 || calls.Load() != 1 {
			t.Errorf("while a call hangs a scrape took %s and made it %d calls, want 0 s and 1", took, calls.Load())
		}
		check.Series(t, reg, map[string]float64{`errors_total{operation=shard_stats}`: 1})

		close(hang)
		synctest.Wait()
		wantShards(t, reg, true)
	})
}

func TestSourceHearsThatTheScrapeGaveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, m := newMetrics(t)
		var heard atomic.Bool
		addShards(t, reg, m, func(ctx context.Context) ([]ShardStat, error) {
			<-ctx.Done()
			heard.Store(true)
			return nil, ctx.Err()
		})
		wantShards(t, reg, false)
		synctest.Wait()
		if !heard.Load() {
			t.Error("the source's context did not end")
		}
		check.Series(t, reg, map[string]float64{`errors_total{operation=shard_stats}`: 1})
	})
}

func TestManyScrapesAskOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, m := newMetrics(t)
		var calls atomic.Int32
		addShards(t, reg, m, func(context.Context) ([]ShardStat, error) {
			calls.Add(1)
			time.Sleep(100 * time.Millisecond)
			return []ShardStat{{Topic: "orders", Pending: 5}}, nil
		})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { wantShards(t, reg, true) })
		}
		wg.Wait()
		time.Sleep(statsKeep - time.Millisecond)
		wantShards(t, reg, true)
		if n := calls.Load(); n != 1 {
			t.Errorf("21 scrapes within a second asked %d times, want once", n)
		}
		time.Sleep(time.Millisecond)
		wantShards(t, reg, true)
		if n := calls.Load(); n != 2 {
			t.Errorf("a scrape after a second made it %d calls, want 2", n)
		}
	})
}

func TestShardCollectorNeedsItsParts(t *testing.T) {
	t.Parallel()
	if _, err := NewShardCollector(ShardCollectorConfig{}); err == nil {
		t.Error("made a collector of nothing")
	}
}

// addShards registers a collector over stats and returns its log.
func addShards(t *testing.T, reg prometheus.Registerer, m *metrics, stats ShardStats) *bytes.Buffer {
	t.Helper()
	var log bytes.Buffer
	c, err := NewShardCollector(ShardCollectorConfig{
		Stats: stats, Errors: m.errors, Series: 4, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	check.OK(t, err)
	check.OK(t, reg.Register(c))
	return &log
}

func wantShards(t *testing.T, reg prometheus.Gatherer, want bool) {
	t.Helper()
	_, all := check.Metrics(t, reg)
	_, got := all[`pending_tasks{shard=0,topic=orders}`]
	if got != want {
		t.Errorf("pending_tasks exported: %t, want %t", got, want)
	}
}
