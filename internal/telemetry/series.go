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
	most    int // topics with series of their own; 0: each

	mu     sync.Mutex
	topics map[string]*topicSeries // of the families; "" for metrics without topics
	gone   *total                  // what forgotten topics counted
}

// topicSeries are the series of a topic, in the order of the metrics and of their values.
type topicSeries struct {
	series     []series
	histograms []histogram
	counters   []Counters
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
	series, histograms, counters := all.series, all.histograms, all.counters
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
			value = m.vector
			if vec, ok := m.vector.(*prometheus.GaugeVec); ok && field.Type() == reflect.TypeFor[SwitchVec]() {
				value = SwitchVec{vec}
			}
		case m.family == nil:
			continue
		case m.family.bounds != nil:
			value, histograms = &histograms[0], histograms[1:]
		case field.Type() == reflect.TypeFor[*Counters]():
			value, counters = &counters[0], counters[1:]
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
	var all topicSeries
	var of *dto.LabelPair
	if topic != "" {
		of = pair("topic", topic)
	}
	n := 0
	for _, m := range d.metrics {
		n += max(1, len(m.values))
	}
	all.series = make([]series, 0, n)
	for _, m := range d.metrics {
		switch {
		case m.family == nil:
		case m.family.bounds != nil:
			all.histograms = append(all.histograms, histogram{family: m.family, labels: labels{topic: of}})
		case m.family.of == reflect.TypeFor[*Counters]():
			all.counters = append(all.counters, Counters{family: m.family, topic: of})
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

// forget removes the series of a topic.
func (d *declaration) forget(topic string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if all := d.topics[topic]; all != nil {
		d.gone.count(all)
		delete(d.topics, topic)
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
	if d.crowded() {
		d.collectTogether(ch)
		return
	}
	d.mu.Lock()
	topics := slices.Collect(maps.Values(d.topics))
	d.mu.Unlock()
	for _, all := range topics {
		all.collect(ch)
	}
}

func (t *topicSeries) collect(ch chan<- prometheus.Metric) {
	for i := range t.series {
		ch <- &t.series[i]
	}
	for i := range t.histograms {
		ch <- &t.histograms[i]
	}
	for i := range t.counters {
		for _, one := range t.counters[i].all() {
			ch <- one
		}
	}
}

// family has the parts that all series of a metric share.
type family struct {
	desc     *prometheus.Desc
	of       reflect.Type   // the field's.
	label    string         // the metric's own, if it has one.
	together rule           // for gauges.
	counts   bool           // else it is a gauge.
	bounds   []float64      // of a histogram; nil for others
	unused   *dto.Histogram // what a histogram shows before its first value
}

// switches reports whether the metric is 1 or 0.
func (f *family) switches() bool {
	return f.of == reflect.TypeFor[Switch]() || f.of == reflect.TypeFor[map[string]Switch]()
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

// Counters are the counters of a topic by the value of the metric's own label.
type Counters struct {
	family *family
	topic  *dto.LabelPair

	mu   sync.RWMutex
	made map[string]*series
}

// WithLabelValues returns the counter of a value. It appears with its first use.
func (c *Counters) WithLabelValues(value string) prometheus.Counter { return c.of(value) }

func (c *Counters) of(value string) *series {
	c.mu.RLock()
	one := c.made[value]
	c.mu.RUnlock()
	if one != nil {
		return one
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made = map[string]*series{}
	}
	if c.made[value] == nil {
		c.made[value] = &series{family: c.family, labels: labels{topic: c.topic, own: pair(c.family.label, value)}}
	}
	return c.made[value]
}

// all returns the counters that there are.
func (c *Counters) all() []*series {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Values(c.made))
}

// histogram is one series of a histogram. It takes memory for its buckets with its first value,
// because most topics of a scanner may sleep. It implements prometheus.Observer.
type histogram struct {
	family *family
	labels labels
	used   atomic.Pointer[prometheus.Histogram]
	sum    *dto.Histogram // in place of used, of topics together
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
	if used := h.used.Load(); h.sum != nil {
		m.Histogram = h.sum
	} else if used == nil {
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

func (s *series) value() float64 { return math.Float64frombits(s.bits.Load()) }

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
	v := s.value()
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
