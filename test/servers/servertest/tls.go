package servertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// OverTLS puts TLS in front of the broker of a URL. It returns the URL to use, and a pool
// that trusts its certificate. The caller's connections must end before it does.
func OverTLS(t testing.TB, amqp string) (amqps string, pool *x509.CertPool) {
	t.Helper()
	return OverTLSFor(t, amqp, time.Hour)
}

// OverTLSFor is OverTLS with a certificate that is good for the given time.
func OverTLSFor(t testing.TB, amqp string, good time.Duration) (amqps string, pool *x509.CertPool) {
	t.Helper()
	cert, pool := CertificateFor(t, good)
	u, err := url.Parse(amqp)
	check.OK(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert},
		MinVersion: tls.VersionTLS12})
	check.OK(t, err)
	var running sync.WaitGroup
	broker := u.Host
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { join(t.Context(), client, broker) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	u.Scheme, u.Host = "amqps", listener.Addr().String()
	return u.String(), pool
}

// join passes bytes between a client and a server until both have closed.
func join(ctx context.Context, client net.Conn, addr string) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // a lost connection is its end
		_ = to.Close()
	}
	both.Go(func() { pass(server, client) })
	both.Go(func() { pass(client, server) })
	both.Wait()
}
