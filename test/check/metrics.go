package check

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics scrapes reg. It returns the metrics, each as "name TYPE label,label", and the values of
// their series, each as name{label=value,label=value} without the prefix duefleet_.
func Metrics(t testing.TB, reg prometheus.Gatherer) (all []string, series map[string]float64) {
	t.Helper()
	gathered, err := reg.Gather()
	OK(t, err)
	series = map[string]float64{}
	for _, mf := range gathered {
		name := strings.TrimPrefix(mf.GetName(), "duefleet_")
		var labels []string
		for _, metric := range mf.GetMetric() {
			labels = labels[:0]
			var pairs []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetName())
				pairs = append(pairs, l.GetName()+"="+l.GetValue())
			}
			key := "{" + strings.Join(pairs, ",") + "}"
			if h := metric.GetHistogram(); h != nil {
				series[name+"_count"+key] = float64(h.GetSampleCount())
				series[name+"_sum"+key] = h.GetSampleSum()
				continue
			}
			series[name+key] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
		all = append(all, mf.GetName()+" "+mf.GetType().String()+" "+strings.Join(labels, ","))
	}
	return all, series
}

// Series scrapes reg, and compares some series with what is wanted; see Metrics.
func Series(t testing.TB, reg prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	_, got := Metrics(t, reg)
	for series, v := range want {
		if g, ok := got[series]; !ok || g != v {
			t.Errorf("%s = %v (exported: %t), want %v", series, g, ok, v)
		}
	}
}
