package telemetry

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// all is the label of series that show all topics together, or all shards of a topic.
const all = "all"

// rule says how a gauge shows topics together.
type rule string

const (
	summed   rule = ""    // their sum
	greatest rule = "max" // the greatest; a Switch is always one of these
	// Each topic that isn't 0 has its own series, up to Set.MostTopics. The others' sum is shown too.
	each rule = "each"
)

// togetherBy returns the rule of a field.
func togetherBy(field reflect.StructField) rule {
	switch r := rule(field.Tag.Get("together")); {
	case r == summed && field.Type == reflect.TypeFor[Switch]():
		return greatest
	case r == summed || r == greatest || r == each:
		return r
	default:
		panic(fmt.Sprintf("%s: together %q is no rule", field.Name, r))
	}
}

// total has the sums of what several topics counted, in the order of a topic's series.
type total struct {
	series     []float64
	histograms []*dto.Histogram // nil: it has no value
	counters   []map[string]float64
}

// count adds what a topic counted. It leaves out gauges, which are of the moment.
func (t *total) count(topic *topicSeries) {
	if t.series == nil {
		t.series, t.histograms = make([]float64, len(topic.series)), make([]*dto.Histogram, len(topic.histograms))
		t.counters = make([]map[string]float64, len(topic.counters))
	}
	for i := range topic.series {
		if s := &topic.series[i]; s.family.counts {
			t.series[i] += s.value()
		}
	}
	for i := range topic.histograms {
		t.histograms[i] = plus(t.histograms[i], &topic.histograms[i])
	}
	for i := range topic.counters {
		for _, one := range topic.counters[i].all() {
			t.countOne(i, one)
		}
	}
}

// countOne adds a counter with a label of its own. Numbers of shards mean nothing across topics.
func (t *total) countOne(at int, one *series) {
	value := one.labels.own.GetValue()
	if one.family.label == shardLabel {
		value = all
	}
	if t.counters[at] == nil {
		t.counters[at] = map[string]float64{}
	}
	t.counters[at][value] += one.value()
}

// plus returns the sum of a histogram and another. It may change the sum.
func plus(sum *dto.Histogram, more *histogram) *dto.Histogram {
	used := more.used.Load()
	if used == nil {
		return sum
	}
	var m dto.Metric
	if err := (*used).Write(&m); err != nil {
		return sum // never happens
	}
	h := m.GetHistogram()
	if sum == nil {
		h.CreatedTimestamp = nil
		return h
	}
	add(&sum.SampleCount, h.GetSampleCount())
	add(&sum.SampleSum, h.GetSampleSum())
	for i, b := range h.GetBucket() {
		add(&sum.GetBucket()[i].CumulativeCount, b.GetCumulativeCount())
	}
	return sum
}

func add[T uint64 | float64](to **T, v T) {
	v += **to
	*to = &v
}

// copied returns a total that changes without this one.
func (t *total) copied() *total {
	c := &total{series: slices.Clone(t.series), histograms: slices.Clone(t.histograms)}
	for i, h := range c.histograms {
		if h == nil {
			continue
		}
		c.histograms[i] = &dto.Histogram{SampleCount: h.SampleCount, SampleSum: h.SampleSum}
		for _, b := range h.GetBucket() {
			c.histograms[i].Bucket = append(c.histograms[i].Bucket,
				&dto.Bucket{UpperBound: b.UpperBound, CumulativeCount: b.CumulativeCount})
		}
	}
	for _, m := range t.counters {
		c.counters = append(c.counters, maps.Clone(m))
	}
	return c
}

// crowded reports whether there are more topics than may have series of their own.
func (d *declaration) crowded() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most > 0 && len(d.topics) > d.most
}

// collectTogether sends the series of all topics together. Topics that need attention have their own
// besides.
func (d *declaration) collectTogether(ch chan<- prometheus.Metric) {
	sum, own := d.sum()
	for _, one := range own {
		ch <- one
	}
	together := d.begin(all)
	for i := range together.series {
		together.series[i].Set(sum.series[i])
	}
	for i, values := range sum.counters {
		for value, n := range values {
			together.counters[i].of(value).Set(n)
		}
	}
	for i, h := range sum.histograms {
		if h != nil {
			together.histograms[i].sum = h
		}
	}
	together.collect(ch)
}

// sum returns what all topics have together, and the series that topics have of their own.
func (d *declaration) sum() (sum *total, own []*series) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum = d.gone.copied()
	var shown []int // by series
	for _, name := range slices.Sorted(maps.Keys(d.topics)) {
		topic := d.topics[name]
		sum.count(topic)
		if shown == nil {
			shown = make([]int, len(topic.series))
		}
		for i := range topic.series {
			s := &topic.series[i]
			v := s.value()
			switch {
			case s.family.counts || v == 0:
			case s.family.together == greatest:
				sum.series[i] = max(sum.series[i], v)
			case s.family.together == each && shown[i] < d.most && name != all:
				shown[i]++
				own = append(own, s)
			case s.family.together == each && s.family.switches():
				// N others are shown.
			default:
				sum.series[i] += v
			}
		}
	}
	return sum, own
}
