package telemetry

import (
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/problem"
)

// AddProblems registers duefleet_problem: one series for each kind and topic of the problems
// that find returns. It calls find at each scrape, so the series of a problem that is over
// is absent. find should only read a state that other code keeps. If more than most topics have
// problems of a kind, most of them have a series, and one labelled topic="all" stands for the
// others.
func AddProblems(reg prometheus.Registerer, most int, find func() []problem.Problem) error {
	desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "problem"),
		"1 while this scanner has a problem of that kind, absent otherwise. The topic is empty if it isn't about one.",
		[]string{"kind", "topic"}, nil)
	if err := reg.Register(problems{desc, most, find}); err != nil {
		return fmt.Errorf("register the problems: %w", err)
	}
	return nil
}

type problems struct {
	desc *prometheus.Desc
	most int
	find func() []problem.Problem
}

// Describe implements prometheus.Collector.
func (p problems) Describe(ch chan<- *prometheus.Desc) { ch <- p.desc }

// Collect implements prometheus.Collector. Problems of several shards are one series.
func (p problems) Collect(ch chan<- prometheus.Metric) {
	topics := map[problem.Kind]map[string]bool{}
	for _, found := range p.find() {
		if topics[found.Kind] == nil {
			topics[found.Kind] = map[string]bool{}
		}
		topics[found.Kind][found.Topic] = true
	}
	for kind, of := range topics {
		names := slices.Sorted(maps.Keys(of)) // "" is the first
		if len(names) > p.most {
			names = append(slices.DeleteFunc(names[:p.most], func(n string) bool { return n == all }), all)
		}
		for _, name := range names {
			ch <- prometheus.MustNewConstMetric(p.desc, prometheus.GaugeValue, 1, string(kind), name)
		}
	}
}
