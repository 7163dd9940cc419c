package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// countLimit limits the query of one scrape.
const countLimit = 2 * time.Second

// metrics are a relay's. The gauges ask the database at each scrape.
type metrics struct {
	db                      *sql.DB
	countRows               string
	stored                  *prometheus.CounterVec
	waiting, oldest, failed *prometheus.Desc
}

// newMetrics registers metrics, unless to is nil.
func newMetrics(to prometheus.Registerer, db *sql.DB, countRows string) (*metrics, error) {
	name := func(s string) string { return prometheus.BuildFQName("duefleet", "outbox", s) }
	m := &metrics{
		db: db, countRows: countRows,
		stored: prometheus.NewCounterVec(prometheus.CounterOpts{Name: name("stored_total"),
			Help: "Rows that this relay brought to Redis and removed, by action."}, []string{"action"}),
		waiting: prometheus.NewDesc(name("waiting_rows"), "Rows that wait for a relay.", nil, nil),
		oldest: prometheus.NewDesc(name("oldest_waiting_seconds"),
			"Time since the INSERT of the oldest row that waits, by the database's clock.", nil, nil),
		failed: prometheus.NewDesc(name("failed_rows"), "Rows that break a rule and were set aside.", nil, nil),
	}
	for _, action := range []string{"schedule", "cancel", "reschedule"} {
		m.stored.WithLabelValues(action)
	}
	if to == nil {
		return m, nil
	}
	return m, errors.Join(to.Register(m.stored), to.Register(m))
}

// unregister lets another relay register its metrics.
func (m *metrics) unregister(from prometheus.Registerer) {
	if from != nil {
		from.Unregister(m.stored)
		from.Unregister(m)
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.waiting
	to <- m.oldest
	to <- m.failed
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countLimit)
	defer cancel()
	var waiting, oldest, failed float64
	if err := m.db.QueryRowContext(ctx, m.countRows).Scan(&waiting, &oldest, &failed); err != nil {
		to <- prometheus.NewInvalidMetric(m.waiting, fmt.Errorf("count the rows of the outbox: %w", err))
		return
	}
	to <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, waiting)
	to <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, oldest)
	to <- prometheus.MustNewConstMetric(m.failed, prometheus.GaugeValue, failed)
}
