package console

import (
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
