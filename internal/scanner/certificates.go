package scanner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/telemetry"
)

const (
	// certificateRest is how long before its end a certificate becomes a problem.
	certificateRest = 7 * 24 * time.Hour
	// certificateInterval is the time between two looks at the files.
	certificateInterval = time.Minute
)

// certificates is the check whether certificates of this scanner's files end soon: the
// authorities' and its own. It doesn't see the certificates of servers.
type certificates struct {
	files []connect.Certificate
	log   *slog.Logger
	every time.Duration // certificateInterval, except in tests

	found atomic.Pointer[problem.Problem] // nil: none ends soon
}

// observeCertificates registers the expiry time of each certificate file in use.
func (s *Scanner) observeCertificates() error {
	files, err := connect.Certificates(s.cfg.Settings)
	for _, c := range files {
		err = errors.Join(err, telemetry.AddCertificate(s.cfg.Registry, c.Use, c.File, c.Expires))
	}
	s.certificates = &certificates{files: files, log: s.log, every: certificateInterval}
	return err
}

// watch runs the check until ctx ends.
func (k *certificates) watch(ctx context.Context) {
	for ctx.Err() == nil {
		k.look(ctx)
		retry.Sleep(ctx, k.every)
	}
}

// look reads the files. Certificates that end soon are one problem.
func (k *certificates) look(ctx context.Context) {
	now, first := time.Now(), time.Time{}
	var texts []string
	for _, c := range k.files {
		end := c.Expires()
		if end.Sub(now) >= certificateRest {
			continue
		}
		verb := "ends"
		if end.Before(now) {
			verb = "ended"
		}
		texts = append(texts, fmt.Sprintf("%s, for connections to %s, %s at %s", c.File, c.Use, verb,
			end.UTC().Format(time.RFC3339)))
		if first.IsZero() || end.Before(first) {
			first = end
		}
	}
	before := k.found.Load()
	switch {
	case len(texts) > 0:
		p := problem.New(problem.CertificateExpiring, "", "a certificate ends soon: "+strings.Join(texts, "; "))
		p.Facts = map[string]string{"ends": first.UTC().Format(time.RFC3339)}
		if k.found.Store(&p); before == nil {
			k.log.WarnContext(ctx, "a certificate ends soon", "why", strings.Join(texts, "; "))
		}
	case before != nil:
		k.found.Store(nil)
		k.log.InfoContext(ctx, "no certificate ends soon")
	}
}

// certificateProblems returns which certificates of this scanner end soon.
func (s *Scanner) certificateProblems() []problem.Problem {
	if p := s.certificates.found.Load(); p != nil {
		return []problem.Problem{*p}
	}
	return nil
}

// certificatesLast fails while a certificate ends soon. Connections are still possible, so
// the check isn't required.
func (s *Scanner) certificatesLast() telemetry.Result {
	return telemetry.Probed("none ends soon", s.certificateProblems()...)
}
