package consumer

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of all consumers that share a registerer.
type metrics struct {
	deliveries *prometheus.CounterVec   // by topic and outcome
	rejected   *prometheus.CounterVec   // by reason
	panics     *prometheus.CounterVec   // by topic
	seconds    *prometheus.HistogramVec // by topic
	running    prometheus.Gauge
	connected  prometheus.Gauge
	errors     *prometheus.CounterVec // by operation
}

const prefix = "duefleet_consumer_"

func newMetrics(to prometheus.Registerer) (*metrics, error) {
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help})
	}
	m := &metrics{
		deliveries: count("deliveries_total", "Deliveries by topic and outcome.", "topic", "outcome"),
		rejected: count("rejected_total", "Deliveries that aren't tasks, sent to the queue's dead-letter exchange.",
			"reason"),
		panics:    count("panics_total", "Handlers that panicked.", "topic"),
		errors:    count("redis_errors_total", "Operations on Redis that failed and are tried again.", "operation"),
		running:   gauge("running", "Handlers that run."),
		connected: gauge("connected", "Consumers that RabbitMQ delivers to."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "handler_seconds", Help: "How long handlers take.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"topic"}),
	}
	if to == nil {
		return m, nil
	}
	return m, errors.Join(
		register(to, &m.deliveries), register(to, &m.rejected), register(to, &m.panics), register(to, &m.errors),
		register(to, &m.running), register(to, &m.connected), register(to, &m.seconds),
	)
}

// register registers a collector. If an equal one is registered already, it uses that.
func register[C prometheus.Collector](to prometheus.Registerer, c *C) error {
	err := to.Register(*c)
	var there prometheus.AlreadyRegisteredError
	if !errors.As(err, &there) {
		return err
	}
	same, ok := there.ExistingCollector.(C)
	if !ok {
		return err
	}
	*c = same
	return nil
}
