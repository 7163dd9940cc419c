package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// certificate writes a self-signed certificate for "redis.test" and its key to files.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	cert, key := newCertificate(t, time.Now().Add(time.Hour))
	return writeFile(t, cert), writeFile(t, key)
}

// certificateUntil returns a certificate that ends at end, as PEM.
func certificateUntil(t *testing.T, end time.Time) string {
	t.Helper()
	cert, _ := newCertificate(t, end)
	return cert
}

func newCertificate(t *testing.T, end time.Time) (certPEM, keyPEM string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.OK(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"redis.test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check.OK(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	check.OK(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
}

func TestTLSProvesBothSides(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	ours, err := TLS{Enabled: true, CAFile: cert, CertFile: cert, KeyFile: key, ServerName: "redis.test"}.Config()
	check.OK(t, err)
	theirs := &tls.Config{Certificates: ours.Certificates, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: ours.RootCAs}
	client, server := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- tls.Server(server, theirs).Handshake() }()
	if err := tls.Client(client, ours).Handshake(); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("server: %v", err)
	}
}

func TestTLSIsOffByDefault(t *testing.T) {
	t.Parallel()
	if got, err := (TLS{CAFile: "/nowhere"}).Config(); got != nil || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestTLSErrors(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	for doc, want := range map[string]string{
		"redis:\n  tls:\n    ca_file: " + cert: `c:2: redis.tls.enabled: must be given if the section has other keys: true, or false to leave it unused`,
		"redis:\n  tls:\n    enabled: true\n    ca_file: " +
			key: `c:4: redis.tls.ca_file: no PEM certificate in ` + key,
		"redis:\n  tls:\n    enabled: true\n    ca_file: /nowhere": `c:4: redis.tls.ca_file: open /nowhere: no such file or directory`,
		"redis: {tls: {enabled: true, cert_file: " + cert +
			"}}": `c:1: redis.tls.cert_file: and key_file must be given together`,
		"redis: {tls: {enabled: true, cert_file: /nowhere, key_file: " + key +
			"}}": `c:1: redis.tls.cert_file: open /nowhere: no such file or directory`,
		"console: {tls: {key_file: /key}}":                       `c:1: console.tls.cert_file: and key_file must be given together`,
		"rabbitmq:\n  tls: {enabled: true}":                      `c:1: rabbitmq.urls: number 1 must begin with amqps://: rabbitmq.tls is enabled`,
		"consul:\n  addr: http://c:8500\n  tls: {enabled: true}": `c:2: consul.addr: must begin with https://: consul.tls is enabled`,
	} {
		_, err := decode("c", []byte(doc), nil)
		wantLines(t, err, want)
	}
	for _, doc := range []string{
		"redis: {tls: {enabled: false, ca_file: /nowhere}}", "redis: {tls: {ca_file: ''}}",
		"rabbitmq: {urls: [amqps://h/], tls: {enabled: true, ca_file: " + cert + "}}",
		"consul: {addr: 'https://c:8501/x', tls: {enabled: true}}",
	} {
		if _, err := decode("c", []byte(doc), nil); err != nil {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestRedisOptionsChooseTheClient(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"redis: {addrs: [a:1], db: 3}":                      "*redis.Client",
		"redis: {addrs: [a:1, b:1]}":                        "*redis.ClusterClient",
		"redis: {addrs: [a:1, b:1], master_name: m, db: 3}": "*redis.Client",
	} {
		cfg, err := decode("c", []byte(doc), nil)
		check.OK(t, err)
		opts, err := cfg.Redis.Options(nil)
		check.OK(t, err)
		client := redis.NewUniversalClient(opts)
		if got := typeName(client); got != want {
			t.Errorf("%s: got %s, want %s", doc, got, want)
		}
		_ = client.Close()
	}
	if _, err := (Redis{TLS: TLS{Enabled: true, CAFile: "/nowhere"}}).Options(nil); err == nil ||
		!strings.HasPrefix(err.Error(), "redis.tls: ca_file: ") {
		t.Errorf("got %v", err)
	}
}

func typeName(client redis.UniversalClient) string {
	if _, ok := client.(*redis.ClusterClient); ok {
		return "*redis.ClusterClient"
	}
	return "*redis.Client"
}

func TestRedisOptionsConnect(t *testing.T) {
	t.Parallel()
	addr, prefix := servertest.Redis(t)
	cfg, err := decode("c", nil, []string{"DUEFLEET_REDIS_ADDRS=" + addr, "DUEFLEET_REDIS_PREFIX=" + prefix,
		"DUEFLEET_REDIS_DB=0"})
	check.OK(t, err)
	opts, err := cfg.Redis.Options(nil)
	check.OK(t, err)
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = wait.Hang, wait.Hang, wait.Hang
	client := redis.NewUniversalClient(opts)
	defer client.Close()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}
