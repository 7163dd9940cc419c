package telemetry

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Set is metrics that are registered together. Packages declare what they count, each as the fields
// of a struct. It is safe for concurrent use.
//
// A field declares one metric. Its tags are the metric's name without the prefix, its help, at most
// one label of its own, and the buckets of a histogram. The field's type says what it is:
//
//	prometheus.Counter, prometheus.Gauge, prometheus.Observer, Switch   one series, at zero from the start
//	map[string]Switch                                                   one for each of the tag's values, at zero
//	*Counters                                                           a topic's, each appears with its first use
//	*prometheus.CounterVec, *prometheus.GaugeVec, SwitchVec             the same, without topics
//
// The tag together says how a gauge of several topics is one series; see rule.
//
// Label values are resolved once, so that counting costs an atomic addition and no look-up. The
// names are an interface: dashboards and alerts depend on them.
type Set struct {
	// MostTopics is how many topics have series of their own. While there are more, they are shown
	// together. 0: each has its own. Set it before something is declared.
	MostTopics int

	mu      sync.Mutex // so that Forget meets all series of a struct or none
	all     []prometheus.Collector
	structs []*declaration
	before  atomic.Pointer[func()]
}

// Declare adds the metrics that the fields of T declare, and returns a T.
func Declare[T any](s *Set) *T { return filled[T](s.declare(reflect.TypeFor[T]()), "") }

// DeclareForTopics adds the metrics that the fields of T declare, with series of its own for each
// topic. The function that it returns makes the series of a topic appear. Two Ts of one topic count
// into the same series.
func DeclareForTopics[T any](s *Set) func(topic string) *T {
	d := s.declare(reflect.TypeFor[T](), "topic")
	d.most = s.MostTopics
	return func(topic string) *T {
		s.mu.Lock()
		defer s.mu.Unlock()
		return filled[T](d, topic)
	}
}

func filled[T any](d *declaration, topic string) *T {
	t := new(T)
	d.fill(reflect.ValueOf(t).Elem(), topic)
	return t
}

// Together reports whether topics are shown together, because there are too many.
func (s *Set) Together() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.structs, (*declaration).crowded)
}

// Forget removes a topic's series. Call it once the topic is gone and its workers have
// stopped: later counts of an old handle are not exported. Counters of all topics together keep
// what it counted before.
func (s *Set) Forget(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.structs {
		d.forget(topic)
	}
}

// Register registers all metrics with reg. If one of the names is taken, it registers none and
// returns the error.
func (s *Set) Register(reg prometheus.Registerer) error {
	if err := reg.Register(group{s.all, &s.before}); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// Before makes f run before each time that the metrics are collected, to set those with a state.
// It may run several times at once.
func (s *Set) Before(f func()) { s.before.Store(&f) }

// Switch is a gauge that is 1 or 0.
type Switch struct{ gauge prometheus.Gauge }

// Set sets the gauge to 1 if on is true, else to 0.
func (s Switch) Set(on bool) { s.gauge.Set(oneIf(on)) }

// SwitchVec is switches by the values of their label.
type SwitchVec struct{ gauges *prometheus.GaugeVec }

// Set sets a gauge to 1 if on is true, else to 0.
func (s SwitchVec) Set(on bool, value ...string) { s.gauges.WithLabelValues(value...).Set(oneIf(on)) }

// metric is a declared metric: a vector, which is a metric without topics whose series appear with
// their first use, or a family.
type metric struct {
	vector prometheus.Collector
	family *family
	values []*dto.LabelPair // of the family's own label; none if it has no label
}

// declare adds the metrics that the fields of a struct declare. All of them have the labels.
func (s *Set) declare(of reflect.Type, labels ...string) *declaration {
	d := &declaration{metrics: make([]metric, of.NumField()), topics: map[string]*topicSeries{}, gone: &total{}}
	s.all, s.structs = append(s.all, d), append(s.structs, d)
	for i := range d.metrics {
		field := of.Field(i)
		name := field.Tag.Get("metric")
		if name == "" {
			continue
		}
		own := append(labels[:len(labels):len(labels)], strings.Fields(field.Tag.Get("label"))...)
		options := prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: field.Tag.Get("help")}
		switch m := &d.metrics[i]; field.Type {
		case reflect.TypeFor[*prometheus.CounterVec]():
			m.vector = prometheus.NewCounterVec(prometheus.CounterOpts(options), own)
		case reflect.TypeFor[*prometheus.GaugeVec](), reflect.TypeFor[SwitchVec]():
			m.vector = prometheus.NewGaugeVec(options, own)
		default:
			m.family = newFamily(field, prometheus.NewDesc(
				prometheus.BuildFQName(namespace, "", name), options.Help, own, nil))
			for _, v := range strings.Fields(field.Tag.Get("values")) {
				m.values = append(m.values, pair(own[len(own)-1], v))
			}
		}
	}
	return d
}

func newFamily(field reflect.StructField, desc *prometheus.Desc) *family {
	f := &family{desc: desc, of: field.Type, label: field.Tag.Get("label"), together: togetherBy(field)}
	f.counts = f.of == reflect.TypeFor[prometheus.Counter]() || f.of == reflect.TypeFor[*Counters]()
	if f.of == reflect.TypeFor[prometheus.Observer]() {
		f.bounds = bounds(field.Tag.Get("buckets"))
		f.unused = unused(f.bounds)
	}
	return f
}

// bounds returns the upper bounds that a tag lists.
func bounds(tag string) (all []float64) {
	for _, text := range strings.Fields(tag) {
		bound, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(fmt.Sprintf("buckets %q: %v", tag, err))
		}
		all = append(all, bound)
	}
	return all
}

// group registers and collects its members as one, so that registering can't stop
// half-way.
type group struct {
	members []prometheus.Collector
	before  *atomic.Pointer[func()]
}

// Describe implements prometheus.Collector.
func (g group) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range g.members {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (g group) Collect(ch chan<- prometheus.Metric) {
	if before := g.before.Load(); before != nil {
		(*before)()
	}
	for _, c := range g.members {
		c.Collect(ch)
	}
}
