package intake

import "github.com/prometheus/client_golang/prometheus"

// Metrics count for the intake of one topic; telemetry.Set says what the tags mean.
type Metrics struct {
	Tasks   *prometheus.CounterVec `metric:"intake_total" label:"verb" help:"Messages of the intake that were carried out, by verb: schedule, if-absent, cancel or move."`
	Refused *prometheus.CounterVec `metric:"intake_refused_total" label:"reason" help:"Messages of the intake that broke a rule and went to the exchange for refused messages. The reason is id, when, verb, payload, headers, route, loop or unreadable."`
	Unacked prometheus.Gauge       `metric:"intake_unacked" help:"Messages of the intake that this scanner has and has not acked."`
}
