package scanner

import (
	"errors"

	"github.com/duefleet/duefleet/internal/telemetry"
)

// observeCertificates registers the expiry time of each certificate file in use.
func (s *Scanner) observeCertificates() error {
	certificates, err := s.cfg.Settings.Certificates()
	for _, c := range certificates {
		err = errors.Join(err, telemetry.AddCertificate(s.cfg.Registry, c.Use, c.File, c.Expires))
	}
	return err
}
