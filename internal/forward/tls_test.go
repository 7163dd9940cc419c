package forward_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/forward"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// certificate makes one for 127.0.0.1 that is its own authority.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	secured := secure(t, servertest.RabbitMQ(t), cert)

	p, got := publisher(t, connect(t, forward.Config{URLs: []string{secured}, TLS: &tls.Config{RootCAs: pool}}), "topic", forward.Route{
		Exchange: "e", RoutingKey: "k", Declare: &forward.Declare{Queue: "q"},
	})
	ready(t, p)
	batch := messages("topic", "m", 3000)
	publish(t, p, batch...)
	if n := outcomes(got.all(batch...)); n[forward.Confirmed] != len(batch) {
		t.Errorf("%v, want all confirmed", n)
	}

	stranger := connect(t, forward.Config{URLs: []string{secured}})
	wait.For(t, "the unknown authority as a reason", func() bool {
		connected, _, reason := stranger.State()
		return !connected && strings.Contains(reason, "certificate")
	})
}

// secure puts TLS before the broker and returns the URL to it.
func secure(t *testing.T, rawURL string, cert tls.Certificate) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	front := &proxy{listener: listener, target: u.Host, conns: make(map[net.Conn]struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		front.accept()
		front.running.Wait()
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		front.cut()
		<-done
	})
	u.Scheme, u.Host = "amqps", listener.Addr().String()
	return u.String()
}
