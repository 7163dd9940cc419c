package servertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// Certificate returns a self-signed certificate for 127.0.0.1, and a pool that trusts it. It
// ends in an hour.
func Certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	return CertificateFor(t, time.Hour)
}

// CertificateFor is Certificate for one that is good for the given time.
func CertificateFor(t testing.TB, good time.Duration) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.OK(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(good),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check.OK(t, err)
	parsed, err := x509.ParseCertificate(der)
	check.OK(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// WriteCertificate writes such a certificate and its key to two files in PEM.
func WriteCertificate(t testing.TB, cert, key string) *x509.CertPool {
	t.Helper()
	made, pool := Certificate(t)
	der, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	check.OK(t, err)
	check.OK(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	check.OK(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate[0]}), 0o600))
	return pool
}

// TakesNewCertificate checks that a server uses the certificate in two files, and another
// one once the files have changed. serve starts the server and returns its URL.
func TakesNewCertificate(t testing.TB, serve func(cert, key string) (url string)) {
	t.Helper()
	cert, key := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	trusted := WriteCertificate(t, cert, key)
	url := serve(cert, key)
	ask := func() error {
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: trusted},
		}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		check.OK(t, err)
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	check.OK(t, ask())
	trusted = WriteCertificate(t, cert, key)
	check.Until(t, "the new certificate", func() bool { return ask() == nil })
}
