package producer

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/task"
)

// metrics of all clients that share a registerer. A nil *metrics measures nothing.
type metrics struct {
	calls   *prometheus.CounterVec   // by verb and result
	seconds *prometheus.HistogramVec // by verb
	batch   prometheus.Histogram
	results *prometheus.CounterVec // of a batch's tasks, by result
}

const prefix = "duefleet_producer_"

// newMetrics returns nil if to is nil.
func newMetrics(to prometheus.Registerer) (*metrics, error) {
	if to == nil {
		return nil, nil
	}
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	m := &metrics{
		calls:   count("calls_total", "Calls by verb and result.", "verb", "result"),
		results: count("batch_results_total", "Tasks of ScheduleMany by result.", "result"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "call_seconds", Help: "How long calls take.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"verb"}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "batch_tasks", Help: "Tasks in one call of ScheduleMany.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
	}
	err := errors.Join(register(to, &m.calls), register(to, &m.seconds), register(to, &m.batch), register(to, &m.results))
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
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

// verb is the name of a call in metrics.
type verb string

const (
	verbSchedule     verb = "schedule"
	verbScheduleMany verb = "schedule_many"
	verbCancel       verb = "cancel"
	verbReschedule   verb = "reschedule"
	verbGet          verb = "get"
	verbHistory      verb = "history"
)

// measured is a call in progress.
type measured struct {
	m     *metrics
	verb  verb
	began time.Time
}

func (m *metrics) begin(v verb) measured {
	if m == nil {
		return measured{}
	}
	return measured{m, v, time.Now()}
}

// end counts a call by the error that it returns.
func (c measured) end(err *error) {
	if c.m == nil {
		return
	}
	c.m.calls.WithLabelValues(string(c.verb), resultOf(*err)).Inc()
	c.m.seconds.WithLabelValues(string(c.verb)).Observe(time.Since(c.began).Seconds())
}

// endBatch counts a call of ScheduleMany and each of its tasks. The result of the call is
// the result of the first task that failed.
func (c measured) endBatch(results []Result) {
	if c.m == nil {
		return
	}
	var first error
	for _, r := range results {
		c.m.results.WithLabelValues(resultOf(r.Err)).Inc()
		if first == nil {
			first = r.Err
		}
	}
	c.m.batch.Observe(float64(len(results)))
	c.end(&first)
}

// resultOf returns the name of err's kind.
func resultOf(err error) string {
	if err == nil {
		return "ok"
	}
	for _, kind := range []struct {
		err  error
		name string
	}{
		{task.ErrNotFound, "not_found"},
		{task.ErrExists, "exists"},
		{task.ErrInvalid, "invalid"},
		{task.ErrUncertain, "uncertain"},
		{task.ErrUnavailable, "unavailable"},
		{task.ErrReplicas, "replicas"},
		{task.ErrRedisFull, "full"},
		{task.ErrUnknownTopic, "unknown_topic"},
	} {
		if errors.Is(err, kind.err) {
			return kind.name
		}
	}
	return "error"
}
