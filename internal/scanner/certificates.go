package scanner

import (
	"errors"

	"github.com/duefleet/duefleet/internal/telemetry"
)

// observeCertificates registers when each file of certificates in use ends.
func (s *Scanner) observeCertificates() error {
	certificates, err := s.cfg.Settings.Certificates()
	for _, c := range certificates {
		err = errors.Join(err, telemetry.AddCertificate(s.cfg.Registry, c.Use, c.File, c.Expires))
	}
	return err
}
