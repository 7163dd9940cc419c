// Package telemetry shows a running scanner to its operator: metrics for Prometheus, the
// health of its dependencies over HTTP, and the logger. It imports none of the parts it
// reports on. They call its handles, and it calls functions that they pass in.
package telemetry

import (
	"cmp"
	"fmt"
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

const namespace = "duefleet"

// allShards replaces the shard's number in series about all shards of a topic.
const allShards = "all"

// Metrics are the metrics of one scanner. Their names are an interface: dashboards and
// alerts depend on them. All methods may be called concurrently.
type Metrics struct {
	topics      *topicVectors
	shardSeries int // a topic with more shards has one series for all of them

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
	build           prometheus.Collector
}

// NewRegistry returns a registry with the metrics of the Go runtime and the process. A
// scanner adds its own.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// Build is the program's build, for build_info; "" is unknown.
type Build struct{ Version, Commit string }

// NewMetrics registers the metrics of one scanner with reg. If one of the names is taken,
// it registers none and returns the error. A topic with more than shardSeries shards has
// one series for all shards, labelled shard="all", in place of one per shard.
func NewMetrics(reg prometheus.Registerer, shardSeries int, build Build) (*Metrics, error) {
	m := &Metrics{
		build:           buildInfo(build),
		topics:          newTopicVectors(),
		shardSeries:     shardSeries,
		rabbitConnected: gauge("rabbitmq_connected", "1 while the connection to RabbitMQ is open."),
		rabbitBlocked:   gauge("rabbitmq_blocked", "1 while RabbitMQ blocks publishers (memory or disk alarm)."),
		redisUp:         gauge("redis_up", "1 while Redis answers."),
		redisUnsafe: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "redis_unsafe",
			Help: "1 while Redis is set to lose tasks that it acknowledged; the reason is eviction or persistence. Absent if " +
				"unknown."}, []string{"reason"}),
		consulUp: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "consul_up",
			Help: "1 while Consul answers. Absent if Consul is not configured."}, nil),
		configApplied: gauge("config_applied_index", "Index of the topics' configuration in effect."),
		configDocuments: gauge("config_documents_hash",
			"Hash of the topics' documents in effect; equal on scanners with the same documents. 0 until some were read."),
		configErrors: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "config_errors_total",
			Help: "Configurations refused; the previous one stayed in effect."}),
		configBroken: gauge("config_errors", "Configurations that are refused now: topics' documents or a file with "+
			"mistakes."),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "errors_total",
			Help: "Errors after which the scanner went on, by operation."}, []string{"operation"}),
		scanners: gauge("live_scanners", "Members of the fleet with a fresh heartbeat, this one included."),
	}
	if err := reg.Register(m.all()); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func (m *Metrics) all() group {
	g := group{
		m.rabbitConnected, m.rabbitBlocked, m.redisUp, m.redisUnsafe, m.consulUp,
		m.configApplied, m.configDocuments, m.configErrors, m.configBroken, m.errors, m.scanners, m.build,
	}
	for _, v := range m.topics.vectors {
		g = append(g, v)
	}
	return g
}

// SetRabbitMQConnected records whether the connection to RabbitMQ is open.
func (m *Metrics) SetRabbitMQConnected(yes bool) { m.rabbitConnected.Set(oneIf(yes)) }

// SetRabbitMQBlocked records whether RabbitMQ blocks publishers.
func (m *Metrics) SetRabbitMQBlocked(yes bool) { m.rabbitBlocked.Set(oneIf(yes)) }

// SetRedisUp records whether Redis answers.
func (m *Metrics) SetRedisUp(yes bool) { m.redisUp.Set(oneIf(yes)) }

// SetRedisUnsafe records whether Redis may lose acknowledged tasks because of its
// settings. reason is one of a few constants. The first call makes the series appear.
func (m *Metrics) SetRedisUnsafe(reason string, yes bool) {
	m.redisUnsafe.WithLabelValues(reason).Set(oneIf(yes))
}

// SetConsulUp records whether Consul answers. Call it only if Consul is configured: the
// first call makes the metric appear.
func (m *Metrics) SetConsulUp(yes bool) { m.consulUp.WithLabelValues().Set(oneIf(yes)) }

// SetConfigApplied records the index of the configuration in effect: Consul's index, or
// without Consul the number of file versions so far.
func (m *Metrics) SetConfigApplied(index uint64) { m.configApplied.Set(float64(index)) }

// SetConfigDocuments records a hash of the topics' documents in effect; 0 if none were
// read. A float64 keeps 53 bits of it.
func (m *Metrics) SetConfigDocuments(hash uint64) { m.configDocuments.Set(float64(hash >> 11)) }

// ConfigError counts a configuration that was refused.
func (m *Metrics) ConfigError() { m.configErrors.Inc() }

// SetConfigErrors sets how many configurations are refused now.
func (m *Metrics) SetConfigErrors(n int) { m.configBroken.Set(float64(n)) }

// SetLiveScanners sets how many members of the fleet have a fresh heartbeat.
func (m *Metrics) SetLiveScanners(n int) { m.scanners.Set(float64(n)) }

// shardLabel returns the label of a shard of a topic with that number of shards.
func (m *Metrics) shardLabel(shard, shards int) string {
	if shards > m.shardSeries {
		return allShards
	}
	return strconv.Itoa(shard)
}

// Error counts an error after which the scanner went on. The operation is one of a few
// constants in snake_case, as in "claim" or "heartbeat". It never contains a topic, an ID
// or an error's text, because each value is a series for ever.
func (m *Metrics) Error(operation string) { m.errors.WithLabelValues(operation).Inc() }

// group registers and collects its members as one, so that registering can't stop
// half-way.
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

func buildInfo(b Build) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "build_info",
		Help: "Always 1; the labels say which build runs.", ConstLabels: prometheus.Labels{
			"version": cmp.Or(b.Version, "unknown"), "revision": cmp.Or(b.Commit, "unknown"), "go_version": runtime.Version(),
		}})
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
