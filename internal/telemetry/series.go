package telemetry

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// declaration holds the metrics of one struct, and their series. Each topic has dozens of series,
// and a scanner thousands of topics. So those that are there from the start are one value each,
// and share their labels; see docs/adr/0040-light-series.md.
type declaration struct {
	metrics []metric

	mu     sync.Mutex
	topics map[string]*topicSeries // of the families; "" for metrics without topics
}

// topicSeries are the series of a topic, in the order of the metrics and of their values.
type topicSeries struct {
	series     []series
	histograms []histogram
}

// fill sets the fields of a struct to the series of a topic.
func (d *declaration) fill(into reflect.Value, topic string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.topics[topic]
	if all == nil {
		all = d.begin(topic)
		d.topics[topic] = all
	}
	series, histograms := all.series, all.histograms
	take := func() prometheus.Gauge {
		one := &series[0]
		series = series[1:]
		return one
	}
	for i, m := range d.metrics {
		field := into.Field(i)
		var value any
		switch {
		case m.vector != nil:
			value = handle(m.vector, topic, field.Type())
		case m.family == nil:
			continue
		case m.family.bounds != nil:
			value, histograms = &histograms[0], histograms[1:]
		case field.Type() == reflect.TypeFor[Switch]():
			value = Switch{take()}
		case len(m.values) == 0:
			value = take()
		default:
			switches := make(map[string]Switch, len(m.values))
			for _, v := range m.values {
				switches[v.GetValue()] = Switch{take()}
			}
			value = switches
		}
		field.Set(reflect.ValueOf(value))
	}
}

// begin returns the series of a topic.
func (d *declaration) begin(topic string) *topicSeries {
	n := 0
	for _, m := range d.metrics {
		if m.family != nil && m.family.bounds == nil {
			n += max(1, len(m.values))
		}
	}
	all := topicSeries{series: make([]series, 0, n)}
	var of *dto.LabelPair
	if topic != "" {
		of = pair("topic", topic)
	}
	for _, m := range d.metrics {
		switch {
		case m.family == nil:
		case m.family.bounds != nil:
			all.histograms = append(all.histograms, histogram{family: m.family, labels: labels{topic: of}})
		case len(m.values) > 0:
			for _, v := range m.values {
				all.series = append(all.series, series{family: m.family, labels: labels{topic: of, own: v}})
			}
		default:
			all.series = append(all.series, series{family: m.family, labels: labels{topic: of}})
		}
	}
	return &all
}

func pair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// handle returns a vector's series of a topic, in the form of a field.
func handle(v vector, topic string, field reflect.Type) any {
	labels := prometheus.Labels{}
	if topic != "" {
		labels["topic"] = topic
	}
	switch v := v.(type) {
	case *prometheus.CounterVec:
		return v.MustCurryWith(labels)
	case *prometheus.GaugeVec:
		if field == reflect.TypeFor[SwitchVec]() {
			return SwitchVec{v.MustCurryWith(labels)}
		}
		return v.MustCurryWith(labels)
	}
	return nil
}

// forget removes the series of a topic.
func (d *declaration) forget(topic string) {
	d.mu.Lock()
	delete(d.topics, topic)
	d.mu.Unlock()
	for _, m := range d.metrics {
		if m.vector != nil {
			m.vector.DeletePartialMatch(prometheus.Labels{"topic": topic})
		}
	}
}

// Describe implements prometheus.Collector.
func (d *declaration) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range d.metrics {
		switch {
		case m.vector != nil:
			m.vector.Describe(ch)
		case m.family != nil:
			ch <- m.family.desc
		}
	}
}

// Collect implements prometheus.Collector.
func (d *declaration) Collect(ch chan<- prometheus.Metric) {
	for _, m := range d.metrics {
		if m.vector != nil {
			m.vector.Collect(ch)
		}
	}
	d.mu.Lock()
	topics := slices.Collect(maps.Values(d.topics))
	d.mu.Unlock()
	for _, all := range topics {
		for i := range all.series {
			ch <- &all.series[i]
		}
		for i := range all.histograms {
			ch <- &all.histograms[i]
		}
	}
}

// family has the parts that all series of a metric share.
type family struct {
	desc   *prometheus.Desc
	counts bool           // else it is a gauge
	bounds []float64      // of a histogram; nil for others
	unused *dto.Histogram // what a histogram shows before its first value
}

// labels are the labels of a series; nil: it has none. All series of a topic share the one, and all
// topics share the other.
type labels struct{ topic, own *dto.LabelPair }

// pairs returns the labels by name, as a metric shows them.
func (l labels) pairs() (all []*dto.LabelPair) {
	for _, one := range []*dto.LabelPair{l.topic, l.own} {
		if one != nil {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

// histogram is one series of a histogram. It takes memory for its buckets with its first value,
// because most topics of a scanner may sleep. It implements prometheus.Observer.
type histogram struct {
	family *family
	labels labels
	used   atomic.Pointer[prometheus.Histogram]
}

// Observe adds a value.
func (h *histogram) Observe(v float64) {
	used := h.used.Load()
	if used == nil {
		made := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "of_a_family", Buckets: h.family.bounds})
		h.used.CompareAndSwap(nil, &made) // of several first values, each adds to the same
		used = h.used.Load()
	}
	(*used).Observe(v)
}

// Desc implements prometheus.Metric.
func (h *histogram) Desc() *prometheus.Desc { return h.family.desc }

// Write implements prometheus.Metric.
func (h *histogram) Write(m *dto.Metric) error {
	if used := h.used.Load(); used == nil {
		m.Histogram = h.family.unused
	} else if err := (*used).Write(m); err != nil {
		return err
	}
	m.Label = h.labels.pairs()
	return nil
}

// unused returns a histogram without values. It is shared, so nobody may change it.
func unused(bounds []float64) *dto.Histogram {
	var h dto.Metric
	_ = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "unused", Buckets: bounds}).Write(&h) // never fails
	h.Histogram.CreatedTimestamp = nil
	return h.Histogram
}

// series is one series of a counter or gauge. It implements prometheus.Counter and
// prometheus.Gauge.
type series struct {
	family *family
	labels labels
	bits   atomic.Uint64 // of a float64
}

// Set sets the value.
func (s *series) Set(v float64) { s.bits.Store(math.Float64bits(v)) }

// Add adds to the value.
func (s *series) Add(v float64) {
	for {
		before := s.bits.Load()
		if s.bits.CompareAndSwap(before, math.Float64bits(math.Float64frombits(before)+v)) {
			return
		}
	}
}

// Sub subtracts from the value.
func (s *series) Sub(v float64) { s.Add(-v) }

// Inc adds 1.
func (s *series) Inc() { s.Add(1) }

// Dec subtracts 1.
func (s *series) Dec() { s.Add(-1) }

// SetToCurrentTime sets the value to the time, in seconds since 1970.
func (s *series) SetToCurrentTime() { s.Set(float64(time.Now().UnixNano()) / float64(time.Second)) }

// Desc implements prometheus.Metric.
func (s *series) Desc() *prometheus.Desc { return s.family.desc }

// Write implements prometheus.Metric.
func (s *series) Write(m *dto.Metric) error {
	v := math.Float64frombits(s.bits.Load())
	if m.Label = s.labels.pairs(); s.family.counts {
		m.Counter = &dto.Counter{Value: &v}
	} else {
		m.Gauge = &dto.Gauge{Value: &v}
	}
	return nil
}

// Describe implements prometheus.Collector.
func (s *series) Describe(ch chan<- *prometheus.Desc) { ch <- s.Desc() }

// Collect implements prometheus.Collector.
func (s *series) Collect(ch chan<- prometheus.Metric) { ch <- s }
