package documents

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/telemetry"
)

// Metrics show the documents of a scanner; telemetry.Set says what the tags mean.
type Metrics struct {
	Applied  prometheus.Gauge    `metric:"config_applied_index" help:"Index of the topics' configuration in effect."`
	Hash     prometheus.Gauge    `metric:"config_documents_hash" help:"Hash of the topics' documents in effect; equal on scanners with the same documents. 0 until some were read."`
	Refused  prometheus.Counter  `metric:"config_errors_total" help:"Configurations refused; the previous one stayed in effect."`
	Broken   prometheus.Gauge    `metric:"config_errors" help:"Configurations that are refused now: topics' documents or a file with mistakes."`
	ConsulUp telemetry.SwitchVec `metric:"consul_up" help:"1 while Consul answers. Absent if Consul is not configured."`
}

// SetHash shows a hash of the documents in effect; 0 if none were read. A float64 keeps 53 bits of
// it.
func (m *Metrics) SetHash(hash uint64) { m.Hash.Set(float64(hash >> 11)) }
