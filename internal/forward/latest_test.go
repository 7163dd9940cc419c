package forward_test

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"sync"
	"testing"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestLatestURLsAndTLS: the broker refuses the password, or its certificate isn't
// trusted. The next attempt uses the URLs and TLS configured by then. URLs that can't be
// parsed change nothing and are logged once.
func TestLatestURLsAndTLS(t *testing.T) {
	t.Parallel()
	good, pool := servertest.OverTLS(t, servertest.RabbitMQ(t))
	var mu sync.Mutex
	url, roots := good, x509.NewCertPool()
	set := func(u string, r *x509.CertPool) {
		mu.Lock()
		defer mu.Unlock()
		url, roots = u, r
	}
	log := &logLines{}
	c := connect(t, forward.Config{URLs: []string{good}, Log: textLog(log), Latest: func() ([]string, *tls.Config) {
		mu.Lock()
		defer mu.Unlock()
		return []string{url}, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}})
	reason := func(word string) func() bool {
		return func() bool {
			connected, _, reason := c.State()
			return !connected && strings.Contains(reason, word)
		}
	}
	check.Until(t, "the authority to be unknown", reason("certificate"))
	set(strings.Replace(good, "guest:guest", "guest:wrong", 1), pool)
	check.Until(t, "the password to be refused", reason("Login was refused"))
	set("amqps://guest:guest@%zz/", pool)
	check.Until(t, "the log to tell of a URL that can't be parsed",
		func() bool { return strings.Contains(log.String(), "the previous ones stay in use") })
	set(good, pool)
	check.Until(t, "a connection", func() bool {
		connected, _, _ := c.State()
		return connected
	})
	if n := strings.Count(log.String(), "the previous ones stay in use"); n != 1 {
		t.Errorf("the log tells of the URL %d times, want once:\n%s", n, log.String())
	}
}
