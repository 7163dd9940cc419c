package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// statsTimeout stays well below Prometheus's default scrape timeout of 10 s.
	statsTimeout = 2 * time.Second
	// statsKeep bounds what scrapes cost Redis, however many there are.
	statsKeep = time.Second
	// statsOperation is the label under which failures are counted.
	statsOperation = "shard_stats"
)

// ShardStat is what one shard holds.
type ShardStat struct {
	Topic string
	Shard int
	// Of is how many shards the topic has, those that can't be read included.
	Of int
	// Pending counts all tasks stored, Backlog those due and not forwarded
	// yet, Leased those claimed, Parked those set aside.
	Pending, Backlog, Leased, Parked int64
	// OldestDue is how long the oldest due task has waited; 0 when none is due. One that
	// waits for another attempt was due at its original time.
	OldestDue time.Duration
}

// ShardStats asks Redis about every shard of every topic. It is called at most
// once at a time and should return when ctx ends, after 2 s.
type ShardStats func(ctx context.Context) ([]ShardStat, error)

// ShardCollectorConfig is what a ShardCollector works with. All is required.
type ShardCollectorConfig struct {
	// Stats is asked at scrape time, at most once a second.
	Stats ShardStats
	// Metrics counts the failures of Stats, as errors of operation shard_stats.
	Metrics *Metrics
	// Log is told when Stats begins to fail and when it works again.
	Log *slog.Logger
}

// ShardCollector exports what the shards hold. While its source fails or is
// slow these series are absent, and the rest of the scrape is as usual. Each
// scanner reports all shards of the fleet: aggregate with max, not with sum. Of a
// topic with more shards than Metrics has series for it exports them as one: their
// sums, and how long the oldest task of them all has waited.
type ShardCollector struct {
	stats   shared[[]ShardStat]
	metrics *Metrics
	log     *slog.Logger
	failing bool // touched by settled alone

	pending, backlog, leased, parked, oldest *prometheus.Desc
}

// NewShardCollector returns a collector that the caller registers.
func NewShardCollector(cfg ShardCollectorConfig) (*ShardCollector, error) {
	if cfg.Stats == nil || cfg.Metrics == nil || cfg.Log == nil {
		return nil, errors.New("shard collector: Stats, Metrics and Log are required")
	}
	c := &ShardCollector{
		metrics: cfg.Metrics,
		log:     cfg.Log,
		pending: shardDesc("pending_tasks", "Tasks stored."),
		backlog: shardDesc("backlog_tasks", "Tasks due and not forwarded yet."),
		leased:  shardDesc("leased_tasks", "Tasks claimed by a scanner."),
		parked:  shardDesc("parked_tasks", "Tasks set aside after their last attempt."),
		oldest:  shardDesc("oldest_due_seconds", "How long the oldest due task has waited, those that wait for another attempt included; 0 when none is due."),
	}
	c.stats = shared[[]ShardStat]{ask: cfg.Stats, timeout: statsTimeout, keep: statsKeep, settled: c.settled}
	cfg.Metrics.errors.WithLabelValues(statsOperation) // from 0 on, so that rate() sees the first failure
	return c, nil
}

// Describe implements prometheus.Collector.
func (c *ShardCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.pending, c.backlog, c.leased, c.parked, c.oldest} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A shard reported twice counts once:
// the registry would fail the whole scrape.
func (c *ShardCollector) Collect(ch chan<- prometheus.Metric) {
	stats, err := c.stats.get()
	if err != nil {
		return
	}
	type key struct {
		topic string
		shard int
	}
	seen := make(map[key]bool, len(stats))
	whole := map[string]ShardStat{} // by topic
	for _, s := range stats {
		k := key{s.Topic, s.Shard}
		if seen[k] {
			continue
		}
		seen[k] = true
		if label := c.metrics.shardLabel(s.Shard, s.Of); label == allShards {
			whole[s.Topic] = whole[s.Topic].plus(s)
		} else {
			c.send(ch, s, label)
		}
	}
	for _, s := range whole {
		c.send(ch, s, allShards)
	}
}

// plus is what two shards of a topic hold.
func (s ShardStat) plus(other ShardStat) ShardStat {
	return ShardStat{
		Topic: other.Topic, Pending: s.Pending + other.Pending, Backlog: s.Backlog + other.Backlog,
		Leased: s.Leased + other.Leased, Parked: s.Parked + other.Parked, OldestDue: max(s.OldestDue, other.OldestDue),
	}
}

func (c *ShardCollector) send(ch chan<- prometheus.Metric, s ShardStat, shard string) {
	emit := func(d *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, s.Topic, shard)
	}
	emit(c.pending, float64(s.Pending))
	emit(c.backlog, float64(s.Backlog))
	emit(c.leased, float64(s.Leased))
	emit(c.parked, float64(s.Parked))
	emit(c.oldest, max(0, s.OldestDue).Seconds())
}

func (c *ShardCollector) settled(err error) {
	ctx := context.Background()
	if err != nil {
		c.metrics.Error(statsOperation)
	}
	switch {
	case err != nil && !c.failing:
		c.log.WarnContext(ctx, "shard statistics unavailable, their metrics are absent", "error", err)
	case err == nil && c.failing:
		c.log.InfoContext(ctx, "shard statistics available again")
	}
	c.failing = err != nil
}

func shardDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, []string{"topic", "shard"}, nil)
}
