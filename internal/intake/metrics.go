package intake

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/telemetry"
)

// Metrics count for the intake of one topic; telemetry.Set says what the tags mean.
type Metrics struct {
	Tasks   *telemetry.Counters `metric:"intake_total" label:"verb" help:"Messages of the intake that were carried out, by verb: schedule, if-absent, if-present, cancel or move."`
	Refused *telemetry.Counters `metric:"intake_refused_total" label:"reason" help:"Messages of the intake that broke a rule and went to the exchange for refused messages. The reason is id, when, verb, payload, headers, route, loop, unreadable or priority."`
	Unacked prometheus.Gauge    `metric:"intake_unacked" help:"Messages of the intake that this scanner has and has not acked."`
}
