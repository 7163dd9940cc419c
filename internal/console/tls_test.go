package console

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestANewCertificate applies without a restart.
func TestANewCertificate(t *testing.T) {
	t.Parallel()
	servertest.TakesNewCertificate(t, func(cert, key string) string {
		s := settings()
		s.TLS.CertFile, s.TLS.KeyFile = cert, key
		return serve(t, fixture.New(t).Store, Config{Settings: s}).console.URL()
	})
}

// TestStreamsOverHTTP2 outlive the limit for writing an event.
func TestStreamsOverHTTP2(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.TLS.CertFile, cfg.TLS.KeyFile = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	trusted := servertest.WriteCertificate(t, cfg.TLS.CertFile, cfg.TLS.KeyFile)
	s := serve(t, fixture.New(t).Store, Config{Settings: cfg})
	s.client.Transport = &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: trusted}}
	lines := s.events(t.Context(), "/stream/parked") // the console reads it every ten seconds
	for events := 0; events < 6; {
		line, open := <-lines
		if !open {
			t.Fatalf("the stream ended after %d events", events)
		}
		if strings.HasPrefix(line, "event: ") {
			events++
		}
	}
}

// TestAnUnencryptedConsole of other machines is in the log. A certificate that can't be read
// is an error.
func TestAnUnencryptedConsole(t *testing.T) {
	t.Parallel()
	s := settings()
	s.Listen, s.Token = "0.0.0.0:0", "0123456789abcdef"
	one := serve(t, fixture.New(t).Store, Config{Settings: s})
	contains(t, one.log.String(), "passwords and tokens travel unencrypted")
	s.TLS.CertFile, s.TLS.KeyFile = "/nowhere/tls.crt", "/nowhere/tls.key"
	_, err := New(Config{Settings: s, Store: one.console.store, Log: one.console.log,
		Registerer: prometheus.NewRegistry()})
	if err == nil || !strings.Contains(err.Error(), "console.tls: ") {
		t.Errorf("%v, want an error about console.tls", err)
	}
}
