package telemetry

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// AddCertificate registers when the certificates of a file end, which is asked at each
// scrape. Use is what they are for, as in "redis".
func AddCertificate(reg prometheus.Registerer, use, file string, expires func() time.Time) error {
	err := reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "certificate_expiry_timestamp_seconds",
		Help:        "When the first certificate of a file ends, in seconds since 1970: authorities and this client's own, as the file is now.",
		ConstLabels: prometheus.Labels{"use": use, "file": file},
	}, func() float64 { return float64(expires().Unix()) }))
	if err != nil {
		return fmt.Errorf("register the certificate %s: %w", file, err)
	}
	return nil
}
