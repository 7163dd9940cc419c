package telemetry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// statsTimeout stays well below Prometheus's default scrape timeout of 10 s.
	statsTimeout = 2 * time.Second
	// statsKeep bounds the cost for Redis, however many scrapes there are.
	statsKeep = time.Second
	// statsOperation is the operation under which failures are counted.
	statsOperation = "shard_stats"
)

// ShardStat holds the numbers of one shard.
type ShardStat struct {
	Topic string
	Shard int
	// The topic has Of shards, unreadable ones included.
	Of int
	// Pending counts all stored tasks, Backlog the due tasks that are not forwarded,
	// Leased the claimed tasks, Parked the tasks set aside.
	Pending, Backlog, Leased, Parked int64
	// OldestDue is how long the oldest due task has waited; 0 if none is due. For a task
	// that waits for another attempt, the original due time counts.
	OldestDue time.Duration
}

// ShardStats reads the numbers of every shard of every topic from Redis. Its calls don't
// overlap. It should return when ctx ends, after 2 s. With an error it may return some numbers. The
// others are unknown.
type ShardStats func(ctx context.Context) ([]ShardStat, error)

// ShardCollectorConfig configures a ShardCollector. All fields are required.
type ShardCollectorConfig struct {
	// Stats is called at scrapes, at most once a second.
	Stats ShardStats
	// Errors counts the failures of Stats, as errors of operation shard_stats.
	Errors *Errors
	// Series is how many shards a topic may have for each to have series of its own.
	Series int
	// Topics is how many topics may have series of their own while Together returns true.
	Topics int
	// Together reports whether topics are shown together; nil: never.
	Together func() bool
	// Log gets a record when Stats begins to fail and when it works again.
	Log *slog.Logger
}

// ShardCollector exports the numbers of the shards. Those that its source can't read are absent,
// and all while it is slow. The rest of the scrape stays. Each scanner reports all shards
// of the fleet: aggregate with max, not with sum. If a topic has more shards than
// Series, one series shows the sum of all shards, or for the oldest task the maximum.
//
// While topics are shown together, one series shows this for all topics. It leaves out topics with
// parked tasks, or with a task that has been due for 10 s or more. Up to Topics of them have a series
// of their own.
type ShardCollector struct {
	cfg     ShardCollectorConfig
	stats   shared[[]ShardStat]
	failing bool // only settled uses it
	numbers []shardNumber
}

// overdue is how late a topic's oldest task is for the topic to be shown on its own.
const overdue = 10 * time.Second

// shardNumber is a metric with the labels topic and shard.
type shardNumber struct {
	desc *prometheus.Desc
	of   func(ShardStat) float64
}

// NewShardCollector returns a collector that the caller registers.
func NewShardCollector(cfg ShardCollectorConfig) (*ShardCollector, error) {
	if cfg.Stats == nil || cfg.Errors == nil || cfg.Log == nil {
		return nil, errors.New("shard collector: Stats, Errors and Log are required")
	}
	if cfg.Together == nil {
		cfg.Together = func() bool { return false }
	}
	c := &ShardCollector{cfg: cfg, numbers: []shardNumber{
		newNumber("pending_tasks", "Tasks stored.", func(s ShardStat) float64 { return float64(s.Pending) }),
		newNumber("backlog_tasks", "Tasks that are due and not forwarded.",
			func(s ShardStat) float64 { return float64(s.Backlog) }),
		newNumber("leased_tasks", "Tasks claimed by a scanner.", func(s ShardStat) float64 { return float64(s.Leased) }),
		newNumber("parked_tasks", "Tasks set aside after their last attempt.",
			func(s ShardStat) float64 { return float64(s.Parked) }),
		newNumber("oldest_due_seconds",
			"How long the oldest due task has waited, from its original due time; 0 if none is due.",
			func(s ShardStat) float64 { return max(0, s.OldestDue).Seconds() }),
	}}
	c.stats = shared[[]ShardStat]{ask: cfg.Stats, timeout: statsTimeout, keep: statsKeep, settled: c.settled}
	cfg.Errors.Operations.WithLabelValues(statsOperation) // start at 0, so that rate() sees the first failure
	return c, nil
}

// Describe implements prometheus.Collector.
func (c *ShardCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, n := range c.numbers {
		ch <- n.desc
	}
}

// Collect implements prometheus.Collector. A shard reported twice counts once, because
// the registry would fail the whole scrape.
func (c *ShardCollector) Collect(ch chan<- prometheus.Metric) {
	stats, err := c.stats.get()
	if err != nil && len(stats) == 0 {
		return
	}
	type key struct {
		topic string
		shard int
	}
	seen := make(map[key]bool, len(stats))
	whole := map[string]ShardStat{} // by topic
	together := c.cfg.Together()
	for _, s := range stats {
		k := key{s.Topic, s.Shard}
		if seen[k] {
			continue
		}
		seen[k] = true
		if label := ShardLabel(s.Shard, s.Of, c.cfg.Series); together || label == all {
			whole[s.Topic] = whole[s.Topic].plus(s)
		} else {
			c.send(ch, s, label)
		}
	}
	shown := slices.Collect(maps.Values(whole))
	if together {
		shown = c.worst(shown)
	}
	for _, s := range shown {
		c.send(ch, s, all)
	}
}

// worst returns the topics that are shown on their own, and the sum of the others.
func (c *ShardCollector) worst(topics []ShardStat) []ShardStat {
	slices.SortFunc(topics, func(a, b ShardStat) int {
		return cmp.Or(cmp.Compare(b.OldestDue, a.OldestDue), cmp.Compare(b.Parked, a.Parked), cmp.Compare(a.Topic, b.Topic))
	})
	var own []ShardStat
	var others ShardStat
	for _, s := range topics {
		if (s.OldestDue >= overdue || s.Parked > 0) && len(own) < c.cfg.Topics && s.Topic != all {
			own = append(own, s)
		} else {
			others = others.plus(s)
		}
	}
	others.Topic = all
	return append(own, others)
}

// plus adds the numbers of another shard. The topic is the other's.
func (s ShardStat) plus(other ShardStat) ShardStat {
	return ShardStat{
		Topic: other.Topic, Pending: s.Pending + other.Pending, Backlog: s.Backlog + other.Backlog,
		Leased: s.Leased + other.Leased, Parked: s.Parked + other.Parked, OldestDue: max(s.OldestDue, other.OldestDue),
	}
}

func (c *ShardCollector) send(ch chan<- prometheus.Metric, s ShardStat, shard string) {
	for _, n := range c.numbers {
		ch <- prometheus.MustNewConstMetric(n.desc, prometheus.GaugeValue, n.of(s), s.Topic, shard)
	}
}

func (c *ShardCollector) settled(err error) {
	ctx := context.Background()
	if err != nil {
		c.cfg.Errors.Count(statsOperation)
	}
	switch {
	case err != nil && !c.failing:
		c.cfg.Log.WarnContext(ctx, "shard statistics incomplete, the metrics of some or all topics are absent", "error", err)
	case err == nil && c.failing:
		c.cfg.Log.InfoContext(ctx, "shard statistics available again")
	}
	c.failing = err != nil
}

func newNumber(name, help string, of func(ShardStat) float64) shardNumber {
	name = prometheus.BuildFQName(namespace, "", name)
	return shardNumber{prometheus.NewDesc(name, help, []string{"topic", shardLabel}, nil), of}
}
