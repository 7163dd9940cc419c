// Package telemetry is what an operator sees of a running scanner: metrics for
// Prometheus, the health of its dependencies over HTTP, and the logger. It
// knows none of the parts it reports on; they are handed its handles, and it
// is handed functions to ask.
package telemetry

import (
	"fmt"
	"runtime/debug"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

const namespace = "duefleet"

// allShards is in the place of a shard's number in series about all of a topic's.
const allShards = "all"

// Metrics are the numbers one scanner counts. Their names are an interface:
// dashboards and alerts depend on them. All methods may be called concurrently.
type Metrics struct {
	topics      *topicVectors
	shardSeries int // most shards of a topic with series of their own

	rabbitConnected prometheus.Gauge
	rabbitBlocked   prometheus.Gauge
	redisUp         prometheus.Gauge
	redisUnsafe     *prometheus.GaugeVec
	consulUp        *prometheus.GaugeVec // no labels; a vector, so that it is absent until it is set
	configApplied   prometheus.Gauge
	configDocuments prometheus.Gauge
	configErrors    prometheus.Counter
	configBroken    prometheus.Gauge
	errors          *prometheus.CounterVec
	scanners        prometheus.Gauge
}

// NewRegistry returns a registry that holds the Go runtime's and the process's
// own metrics, to which a scanner's are added.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// NewMetrics registers the metrics of one scanner with reg. It registers all
// of them or, if one of the names is taken, none and returns the error. Of a topic
// with more than shardSeries shards there is no series for each, but one for all of
// them, whose shard is "all".
func NewMetrics(reg prometheus.Registerer, shardSeries int) (*Metrics, error) {
	m := &Metrics{
		topics:          newTopicVectors(),
		shardSeries:     shardSeries,
		rabbitConnected: gauge("rabbitmq_connected", "1 while the connection to RabbitMQ is open."),
		rabbitBlocked:   gauge("rabbitmq_blocked", "1 while RabbitMQ blocks publishers (memory or disk alarm)."),
		redisUp:         gauge("redis_up", "1 while Redis answers."),
		redisUnsafe: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "redis_unsafe",
			Help: "1 while Redis is set to lose tasks that it acknowledged: reason eviction, or persistence. Absent where it is not known."}, []string{"reason"}),
		consulUp: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "consul_up",
			Help: "1 while Consul answers. Absent where Consul is not configured."}, nil),
		configApplied:   gauge("config_applied_index", "Index of the newest configuration of the topics that is in effect."),
		configDocuments: gauge("config_documents_hash", "A hash of the topics' documents in effect: the same for scanners with the same documents. 0 before any were read."),
		configErrors: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "config_errors_total",
			Help: "Configurations refused; the one before stayed in effect."}),
		configBroken: gauge("config_errors", "Configurations that are refused now: topics' documents with mistakes, or the file with them."),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "errors_total",
			Help: "Errors the scanner outlived, by what it was doing."}, []string{"operation"}),
		scanners: gauge("live_scanners", "Members of the fleet whose heartbeat is fresh, this one included."),
	}
	if err := reg.Register(m.all()); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func (m *Metrics) all() group {
	g := group{
		m.rabbitConnected, m.rabbitBlocked, m.redisUp, m.redisUnsafe, m.consulUp,
		m.configApplied, m.configDocuments, m.configErrors, m.configBroken, m.errors, m.scanners, buildInfo(),
	}
	for _, v := range m.topics.vectors {
		g = append(g, v)
	}
	return g
}

// SetRabbitMQConnected notes whether the connection to RabbitMQ is open.
func (m *Metrics) SetRabbitMQConnected(yes bool) { m.rabbitConnected.Set(oneIf(yes)) }

// SetRabbitMQBlocked notes whether RabbitMQ blocks publishers.
func (m *Metrics) SetRabbitMQBlocked(yes bool) { m.rabbitBlocked.Set(oneIf(yes)) }

// SetRedisUp notes whether Redis answers.
func (m *Metrics) SetRedisUp(yes bool) { m.redisUp.Set(oneIf(yes)) }

// SetRedisUnsafe notes whether Redis is set to lose acknowledged tasks, for a reason
// out of a few constants. The first call makes the series appear.
func (m *Metrics) SetRedisUnsafe(reason string, yes bool) {
	m.redisUnsafe.WithLabelValues(reason).Set(oneIf(yes))
}

// SetConsulUp notes whether Consul answers. Call it only where Consul is
// configured: the first call makes the metric appear.
func (m *Metrics) SetConsulUp(yes bool) { m.consulUp.WithLabelValues().Set(oneIf(yes)) }

// SetConfigApplied names the configuration in effect: Consul's index, or a
// count of the file's versions without Consul.
func (m *Metrics) SetConfigApplied(index uint64) { m.configApplied.Set(float64(index)) }

// SetConfigDocuments takes a hash of the topics' documents in effect, of which a float64
// keeps 53 bits; 0 if none were read.
func (m *Metrics) SetConfigDocuments(hash uint64) { m.configDocuments.Set(float64(hash >> 11)) }

// ConfigError counts a configuration that was refused.
func (m *Metrics) ConfigError() { m.configErrors.Inc() }

// SetConfigErrors is how many configurations are refused now.
func (m *Metrics) SetConfigErrors(n int) { m.configBroken.Set(float64(n)) }

// SetLiveScanners is how many members of the fleet have a fresh heartbeat.
func (m *Metrics) SetLiveScanners(n int) { m.scanners.Set(float64(n)) }

// shardLabel is the label of a shard of a topic that has as many.
func (m *Metrics) shardLabel(shard, shards int) string {
	if shards > m.shardSeries {
		return allShards
	}
	return strconv.Itoa(shard)
}

// Error counts an error that a loop outlived. The operation is one of a few
// constants in snake_case, as in "claim" or "heartbeat", and never holds a
// topic, an ID or an error's text: each value is a series for ever.
func (m *Metrics) Error(operation string) { m.errors.WithLabelValues(operation).Inc() }

// group registers and collects its members as one, so that registering cannot
// stop half-way.
type group []prometheus.Collector

// Describe implements prometheus.Collector.
func (g group) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range g {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (g group) Collect(ch chan<- prometheus.Metric) {
	for _, c := range g {
		c.Collect(ch)
	}
}

func buildInfo() prometheus.Collector {
	labels := prometheus.Labels{"version": "unknown", "revision": "unknown", "go_version": "unknown"}
	if info, ok := debug.ReadBuildInfo(); ok {
		labels["go_version"] = info.GoVersion
		if info.Main.Version != "" {
			labels["version"] = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				labels["revision"] = s.Value
			}
		}
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "build_info",
		Help: "Always 1; the labels say which build runs.", ConstLabels: labels})
	g.Set(1)
	return g
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
