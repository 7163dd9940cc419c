package consul

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestTokenAndTLSAreRenewed: each request uses the current token and each connection the
// current authorities.
func TestTokenAndTLSAreRenewed(t *testing.T) {
	t.Parallel()
	cert, authority := servertest.Certificate(t)
	tokens := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens <- r.Header.Get("X-Consul-Token")
		_, _ = w.Write([]byte(`[{"Key": "p/topics/orders", "Value": "", "ModifyIndex": 1}]`))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)

	token, config := "one", &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	c, err := New(Config{
		Addr: strings.TrimPrefix(server.URL, "https://"), Prefix: "p", Log: slog.New(slog.DiscardHandler),
		Advice: func(string) string { return "" },
		Token:  func() string { return token }, TLS: func() *tls.Config { return config },
	})
	check.OK(t, err)
	t.Cleanup(c.http.CloseIdleConnections)
	if _, err := c.List(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the server's authority: %v", err)
	}
	config = &tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}
	for _, token = range []string{"one", "two"} {
		for _, client := range []string{"client", "watcher"} {
			if client == "client" {
				_, err = c.List(t.Context())
			} else {
				_, _, err = c.watcher.KV().List("p/topics/", nil)
			}
			if err != nil {
				t.Fatalf("%s, token %s: %v", client, token, err)
			}
			if got := check.Receive(t, "the request's token", tokens); got != token {
				t.Errorf("%s: got the token %q, want %q", client, got, token)
			}
		}
	}
}
