package scanner

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
)

// writeCertificate replaces a file, in one step, by a certificate that is good for a time.
func writeCertificate(t *testing.T, path string, good time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.OK(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-30 * 24 * time.Hour),
		NotAfter: time.Now().Add(good)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check.OK(t, err)
	next := path + ".next"
	check.OK(t, os.WriteFile(next, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	check.OK(t, os.Rename(next, path))
}

// TestACertificateThatEndsSoonIsReported: status, /readyz, the metrics and the log report it
// from a week before its end, and after it. The scanner stays ready. It is over when the
// file is renewed.
func TestACertificateThatEndsSoonIsReported(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	l := newLone(t, nil, nil)
	path := filepath.Join(t.TempDir(), "ca.pem")
	writeCertificate(t, path, 8*day)
	settings := *l.cfg.Settings
	settings.Redis.TLS = config.TLS{Enabled: true, CAFile: path}
	var err error
	l.Scanner, err = New(Config{Settings: &settings, Source: config.NewFile(l.path, nil), Store: l.store, Instance: "lone",
		Log: slog.New(slog.NewTextHandler(l.said, nil))})
	check.OK(l.t, err)
	l.certificates.Every = 10 * time.Millisecond
	l.certificates.Look(t.Context())
	if found := l.certificates.Problems(); found != nil {
		t.Errorf("eight days before its end: %+v", found)
	}
	l.run()
	reported := func(text string) (found problem.Problem) {
		t.Helper()
		check.Until(t, "the problem: "+text, func() bool {
			found = l.problem(problem.CertificateExpiring, "")
			return strings.Contains(found.Text, text)
		})
		return found
	}
	end := time.Now().Add(6 * day)
	writeCertificate(t, path, 6*day)
	found := reported(path + ", for connections to redis, ends at " + end.UTC().Format("2006-01-02T"))
	if found.Severity != problem.Degraded || !strings.HasPrefix(found.Facts["ends"], end.UTC().Format("2006-01-02T")) {
		t.Errorf("%+v", found)
	}
	l.sees(true, "certificate_expiring")
	check.Until(t, "the scanner to be ready", func() bool {
		status, body := l.ask("/readyz")
		return status == http.StatusOK && strings.Contains(body, "certificates: down (optional)")
	})
	writeCertificate(t, path, -day)
	reported("redis, ended at ")
	writeCertificate(t, path, 8*day)
	l.sees(false, "certificate_expiring")
	check.Until(t, "the log tells once that it is over", func() bool {
		return len(l.said.Lines("no certificate ends soon")) == 1
	})
	warned := l.said.Lines("msg=\"a certificate ends soon")
	if len(warned) != 1 || !strings.Contains(warned[0], "level=WARN") {
		t.Errorf("the log tells %q", warned)
	}
}
