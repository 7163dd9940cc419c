package telemetry

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/problem"
)

// AddProblems registers duefleet_problem: one series for each kind and topic of the problems
// that find returns. It calls find at each scrape, so the series of a problem that is over
// is absent. find should only read a state that other code keeps. Its topics must be few:
// each is a series.
func AddProblems(reg prometheus.Registerer, find func() []problem.Problem) error {
	desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "problem"),
		"1 while this scanner has a problem of that kind, absent otherwise. The topic is empty if it isn't about one.",
		[]string{"kind", "topic"}, nil)
	if err := reg.Register(problems{desc, find}); err != nil {
		return fmt.Errorf("register the problems: %w", err)
	}
	return nil
}

type problems struct {
	desc *prometheus.Desc
	find func() []problem.Problem
}

// Describe implements prometheus.Collector.
func (p problems) Describe(ch chan<- *prometheus.Desc) { ch <- p.desc }

// Collect implements prometheus.Collector. Problems of several shards are one series.
func (p problems) Collect(ch chan<- prometheus.Metric) {
	type series struct {
		kind  problem.Kind
		topic string
	}
	sent := map[series]bool{}
	for _, found := range p.find() {
		s := series{found.Kind, found.Topic}
		if !sent[s] {
			sent[s] = true
			ch <- prometheus.MustNewConstMetric(p.desc, prometheus.GaugeValue, 1, string(s.kind), s.topic)
		}
	}
}
