package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/bulk"
)

// metrics has the console's metrics, duefleet_console_*.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	actions  *prometheus.CounterVec
}

// newMetrics registers the metrics. streams returns how many streams are open.
func newMetrics(to prometheus.Registerer, streams func() float64) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "duefleet_console_requests_total",
			Help: "Requests by route and status code, at their end."}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "duefleet_console_reading_seconds",
			Help:    "How long readings of Redis take, by what is read.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}, []string{"reading"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "duefleet_console_reading_errors_total",
			Help: "Readings that failed, by what is read."}, []string{"reading"}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "duefleet_console_actions_total",
			Help: "Actions that ended, by the verb of scanner that does the same, and outcome: done or failed."},
			[]string{"verb", "outcome"}),
	}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "duefleet_console_streams",
		Help: "Pages that are open and change by themselves."}, streams)
	err := errors.Join(to.Register(m.requests), to.Register(m.seconds), to.Register(m.errors), to.Register(m.actions),
		to.Register(open))
	if err != nil {
		return nil, fmt.Errorf("console: register metrics: %w", err)
	}
	return m, nil
}

// count counts the requests of next by the routes of mux. A request without a route, such as
// one of a scanner for weak pages, is counted under none.
func (m *metrics) count(mux *http.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, route := mux.Handler(r)
		switch {
		case route == "":
			route = "none"
		case strings.HasPrefix(route, "GET /assets/"):
			route = "GET /assets" // the folder has a hash in its name
		}
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() { m.requests.WithLabelValues(route, strconv.Itoa(seen.status)).Inc() }()
		next.ServeHTTP(seen, r)
	})
}

// measured returns read with its time and its errors counted under a name.
func measured[T any](m *metrics, name string, read func(context.Context) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) {
		began := time.Now()
		got, err := read(ctx)
		m.seconds.WithLabelValues(name).Observe(time.Since(began).Seconds())
		if err != nil {
			m.errors.WithLabelValues(name).Inc()
		}
		return got, err
	}
}

// auditedAction does an action with its entry in the audit record, and counts it.
func (c *Console) auditedAction(ctx context.Context, e bulk.Entry, do func() (bulk.Counts, error)) (bulk.Counts,
	error) {
	n, err := bulk.Audited(ctx, c.store, e, do)
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	verb, _, _ := strings.Cut(e.Command, " --") // as in "tasks move --by 1h"
	if words := strings.Fields(verb); len(words) > 2 {
		verb = words[0] + " " + words[1]
	}
	c.metrics.actions.WithLabelValues(verb, outcome).Inc()
	return n, err
}
