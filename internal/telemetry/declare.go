package telemetry

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Set is metrics that are registered together. Packages declare what they count, each as the fields
// of a struct. It is safe for concurrent use.
//
// A field declares one metric. Its tags are the metric's name without the prefix, its help, at most
// one label of its own, and the buckets of a histogram. The field's type says what it is:
//
//	prometheus.Counter, prometheus.Gauge, prometheus.Observer, Switch   one series, at zero from the start
//	map[string]Switch                                                   one for each of the tag's values, at zero
//	*prometheus.CounterVec, *prometheus.GaugeVec, SwitchVec             series that appear with their first use
//
// Label values are resolved once, so that counting costs an atomic addition and no look-up. The
// names are an interface: dashboards and alerts depend on them.
type Set struct {
	mu     sync.Mutex // so that Forget meets all series of a struct or none
	all    []prometheus.Collector
	topics []vector
	before atomic.Pointer[func()]
}

// Declare adds the metrics that the fields of T declare, and returns a T.
func Declare[T any](s *Set) *T {
	t, vectors := new(T), declared(reflect.TypeFor[T]())
	resolve(reflect.ValueOf(t).Elem(), vectors, nil)
	s.add(vectors)
	return t
}

// DeclareForTopics adds the metrics that the fields of T declare, with series of its own for each
// topic. The function that it returns makes the series of a topic appear. Two Ts of one topic count
// into the same series.
func DeclareForTopics[T any](s *Set) func(topic string) *T {
	vectors := declared(reflect.TypeFor[T](), "topic")
	s.add(vectors)
	s.topics = append(s.topics, vectors...)
	return func(topic string) *T {
		s.mu.Lock()
		defer s.mu.Unlock()
		t := new(T)
		resolve(reflect.ValueOf(t).Elem(), vectors, prometheus.Labels{"topic": topic})
		return t
	}
}

// Forget removes a topic's series. Call it once the topic is gone and its workers have
// stopped: later counts of an old handle are not exported.
func (s *Set) Forget(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.topics {
		if v != nil {
			v.DeletePartialMatch(prometheus.Labels{"topic": topic})
		}
	}
}

func (s *Set) add(vectors []vector) {
	for _, v := range vectors {
		if v != nil {
			s.all = append(s.all, v)
		}
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

// vector is a declared metric with all its series.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(labels prometheus.Labels) int
}

// declared returns the metrics that the fields of a struct declare, nil for other fields.
// All of them have the labels.
func declared(of reflect.Type, labels ...string) []vector {
	all := make([]vector, of.NumField())
	for i := range all {
		field := of.Field(i)
		name := field.Tag.Get("metric")
		if name == "" {
			continue
		}
		own := append(labels[:len(labels):len(labels)], strings.Fields(field.Tag.Get("label"))...)
		options := prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: field.Tag.Get("help")}
		switch field.Type {
		case reflect.TypeFor[prometheus.Counter](), reflect.TypeFor[*prometheus.CounterVec]():
			all[i] = prometheus.NewCounterVec(prometheus.CounterOpts(options), own)
		case reflect.TypeFor[prometheus.Observer]():
			all[i] = prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name,
				Help: options.Help, Buckets: bounds(field.Tag.Get("buckets"))}, own)
		default:
			all[i] = prometheus.NewGaugeVec(options, own)
		}
	}
	return all
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

// resolve sets the fields of a struct to the series of its metrics that have the labels.
func resolve(into reflect.Value, vectors []vector, labels prometheus.Labels) {
	for i, v := range vectors {
		var series any
		switch v := v.(type) {
		case nil:
			continue
		case *prometheus.HistogramVec:
			series = v.With(labels)
		case *prometheus.CounterVec:
			if series = v.MustCurryWith(labels); into.Field(i).Kind() == reflect.Interface {
				series = v.With(labels)
			}
		case *prometheus.GaugeVec:
			series = gauges(into.Type().Field(i), v.MustCurryWith(labels))
		}
		into.Field(i).Set(reflect.ValueOf(series))
	}
}

// gauges returns the series of a metric in the form of its field.
func gauges(field reflect.StructField, v *prometheus.GaugeVec) any {
	switch field.Type {
	case reflect.TypeFor[*prometheus.GaugeVec]():
		return v
	case reflect.TypeFor[SwitchVec]():
		return SwitchVec{v}
	case reflect.TypeFor[Switch]():
		return Switch{v.WithLabelValues()}
	case reflect.TypeFor[prometheus.Gauge]():
		return v.WithLabelValues()
	}
	all := map[string]Switch{}
	for _, value := range strings.Fields(field.Tag.Get("values")) {
		all[value] = Switch{v.WithLabelValues(value)}
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
