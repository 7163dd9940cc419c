// Package telemetry shows a running scanner to its operator: metrics for Prometheus, the
// health of its dependencies over HTTP, and the logger. It imports none of the parts it
// reports on. They call its handles, and it calls functions that they pass in.
package telemetry

import (
	"cmp"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

const namespace = "duefleet"

// allShards replaces the shard's number in series about all shards of a topic.
const allShards = "all"

// Metrics are the metrics of one scanner; declare.go says what the tags mean. Their names
// are an interface: dashboards and alerts depend on them. All fields and methods may be
// used concurrently.
type Metrics struct {
	RabbitMQConnected Switch             `metric:"rabbitmq_connected" help:"1 while the connection to RabbitMQ is open."`
	RabbitMQBlocked   Switch             `metric:"rabbitmq_blocked" help:"1 while RabbitMQ blocks publishers (memory or disk alarm)."`
	RedisUp           Switch             `metric:"redis_up" help:"1 while Redis answers."`
	ConfigApplied     prometheus.Gauge   `metric:"config_applied_index" help:"Index of the topics' configuration in effect."`
	ConfigDocuments   prometheus.Gauge   `metric:"config_documents_hash" help:"Hash of the topics' documents in effect; equal on scanners with the same documents. 0 until some were read."`
	ConfigRefused     prometheus.Counter `metric:"config_errors_total" help:"Configurations refused; the previous one stayed in effect."`
	ConfigBroken      prometheus.Gauge   `metric:"config_errors" help:"Configurations that are refused now: topics' documents or a file with mistakes."`
	LiveScanners      prometheus.Gauge   `metric:"live_scanners" help:"Members of the fleet with a fresh heartbeat, this one included."`

	Errors      *prometheus.CounterVec `metric:"errors_total" label:"operation" help:"Errors after which the scanner went on, by operation."`
	RedisUnsafe *prometheus.GaugeVec   `metric:"redis_unsafe" label:"reason" help:"1 while Redis is set to lose tasks that it acknowledged; the reason is eviction or persistence. Absent if unknown."`
	ClockOffset *prometheus.GaugeVec   `metric:"redis_clock_offset_seconds" help:"How far Redis's clock is ahead of this machine's; negative if it is behind. In a Redis Cluster, of the master with the largest offset. Absent if unknown."`
	MemoryUsed  *prometheus.GaugeVec   `metric:"redis_memory_used_bytes" help:"Memory of Redis that counts for maxmemory. In a Redis Cluster, of the fullest master. Absent if unknown."`
	MemoryMax   *prometheus.GaugeVec   `metric:"redis_memory_max_bytes" help:"maxmemory of that server. Absent if it is unknown or has no limit."`
	ConsulUp    *prometheus.GaugeVec   `metric:"consul_up" help:"1 while Consul answers. Absent if Consul is not configured."`

	shardSeries int // a topic with more shards has one series for all of them

	mu     sync.Mutex // so that Forget meets all of a handle's series or none
	topics []vector
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
	m := &Metrics{shardSeries: shardSeries, topics: declared(reflect.TypeFor[TopicMetrics](), "topic")}
	own := declared(reflect.TypeFor[Metrics]())
	resolve(reflect.ValueOf(m).Elem(), own, nil)
	all := group{buildInfo(build)}
	for _, v := range append(own, m.topics...) {
		if v != nil {
			all = append(all, v)
		}
	}
	if err := reg.Register(all); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// SetRedisUnsafe records whether Redis may lose acknowledged tasks because of its
// settings. reason is one of a few constants. The first call makes the series appear.
func (m *Metrics) SetRedisUnsafe(reason string, yes bool) {
	m.RedisUnsafe.WithLabelValues(reason).Set(oneIf(yes))
}

// SetClockOffset records how far Redis's clock is ahead of this machine's. The first call
// makes the series appear.
func (m *Metrics) SetClockOffset(ahead time.Duration) {
	m.ClockOffset.WithLabelValues().Set(ahead.Seconds())
}

// SetRedisMemory records the memory of the fullest server, in bytes. most is 0 if it has no
// limit. The first call makes the series appear.
func (m *Metrics) SetRedisMemory(used, most int64) {
	m.MemoryUsed.WithLabelValues().Set(float64(used))
	if most > 0 {
		m.MemoryMax.WithLabelValues().Set(float64(most))
	} else {
		m.MemoryMax.Reset()
	}
}

// SetConsulUp records whether Consul answers. Call it only if Consul is configured: the
// first call makes the metric appear.
func (m *Metrics) SetConsulUp(yes bool) { m.ConsulUp.WithLabelValues().Set(oneIf(yes)) }

// SetConfigDocuments records a hash of the topics' documents in effect; 0 if none were
// read. A float64 keeps 53 bits of it.
func (m *Metrics) SetConfigDocuments(hash uint64) { m.ConfigDocuments.Set(float64(hash >> 11)) }

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
func (m *Metrics) Error(operation string) { m.Errors.WithLabelValues(operation).Inc() }

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

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// AddCertificate registers a gauge of the time at which the certificates of a file end.
// It calls expires at each scrape. use is their purpose, as in "redis".
func AddCertificate(reg prometheus.Registerer, use, file string, expires func() time.Time) error {
	err := reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "certificate_expiry_timestamp_seconds",
		Help:        "Unix time at which the first certificate now in the file ends: an authority's or this client's own.",
		ConstLabels: prometheus.Labels{"use": use, "file": file},
	}, func() float64 { return float64(expires().Unix()) }))
	if err != nil {
		return fmt.Errorf("register the certificate %s: %w", file, err)
	}
	return nil
}
