// Package telemetry shows a running scanner to its operator: metrics for Prometheus, the
// health of its dependencies over HTTP, and the logger. It imports none of the parts it
// reports on. They call its handles, and it calls functions that they pass in.
package telemetry

import (
	"cmp"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

const namespace = "duefleet"

// shardLabel is the label with a shard's number.
const shardLabel = "shard"

// Errors counts errors after which the scanner went on, by operation.
type Errors struct {
	Operations *prometheus.CounterVec `metric:"errors_total" label:"operation" help:"Operations after which the scanner went on, by operation."`
}

// Count counts an error. The operation is one of a few constants in snake_case, as in "claim" or
// "heartbeat". It never contains a topic, an ID or an error's text, because each value is a series
// for ever.
func (e *Errors) Count(operation string) { e.Operations.WithLabelValues(operation).Inc() }

// ShardLabel returns the label of one of a topic's shards: its number, or "all" if the topic has
// more shards than most.
func ShardLabel(shard, shards, most int) string {
	if shards > most {
		return all
	}
	return strconv.Itoa(shard)
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

// AddBuild adds the metric that names the build.
func (s *Set) AddBuild(b Build) { s.all = append(s.all, buildInfo(b)) }

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
