package telemetry

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// AddCertificate registers a gauge of the time at which the certificates of a file end.
// It calls expires at each scrape. use is their purpose, as in "redis".
func AddCertificate(reg prometheus.Registerer, use, file string, expires func() time.Time) error {
	err := reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "certificate_expiry_timestamp_seconds",
		Help:        "Unix time at which the first certificate now in the file ends: an authority's or this client's own.",
		ConstLabels: prometheus.Labels{"use": use, "file": file},
	}, func() float64 { return float64(expires().Unix()) }))
	if err != nil {
		return fmt.Errorf("register the certificate %s: %w", file, err)
	}
	return nil
}
