package connect

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// load returns the settings of a file with this content, and of an environment.
func load(t *testing.T, doc string, environ ...string) *config.Config {
	t.Helper()
	cfg, err := config.Load(writeFile(t, doc), environ)
	check.OK(t, err)
	return cfg
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	check.OK(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

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
	ours, err := ReadTLS(config.TLS{Enabled: true, CAFile: cert, CertFile: cert, KeyFile: key, ServerName: "redis.test"})
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
	if got, err := ReadTLS(config.TLS{CAFile: "/nowhere"}); got != nil || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestRedisOptionsChooseTheClient(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"redis: {addrs: [a:1], db: 3}":                      "*redis.Client",
		"redis: {addrs: [a:1, b:1]}":                        "*redis.ClusterClient",
		"redis: {addrs: [a:1, b:1], master_name: m, db: 3}": "*redis.Client",
	} {
		cfg := load(t, doc)
		opts, err := Redis(cfg.Redis, nil)
		check.OK(t, err)
		client := redis.NewUniversalClient(opts)
		if got := typeName(client); got != want {
			t.Errorf("%s: got %s, want %s", doc, got, want)
		}
		_ = client.Close()
	}
	if _, err := Redis(config.Redis{TLS: config.TLS{Enabled: true, CAFile: "/nowhere"}}, nil); err == nil ||
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
	cfg := load(t, "", "DUEFLEET_REDIS_ADDRS="+addr, "DUEFLEET_REDIS_PREFIX="+prefix, "DUEFLEET_REDIS_DB=0")
	opts, err := Redis(cfg.Redis, nil)
	check.OK(t, err)
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = check.Hang, check.Hang, check.Hang
	client := redis.NewUniversalClient(opts)
	defer client.Close()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

// TestCertificatesEnd: Expires returns when the first certificate in the current file ends.
func TestCertificatesEnd(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	files := "ca_file: " + cert + ", cert_file: " + cert + ", key_file: " + key
	cfg := load(t, "redis: {tls: {enabled: true, "+files+"}}")
	all, err := Certificates(cfg)
	if err != nil || len(all) != 1 || all[0].Use != "redis" || all[0].File != cert {
		t.Fatalf("got %+v, %v; want one file of redis", all, err)
	}
	end, err := firstEnd(cert)
	if err != nil || !all[0].Expires().Equal(end) {
		t.Errorf("got %v, want %v; %v", all[0].Expires(), end, err)
	}
	sooner := certificateUntil(t, end.Add(-time.Second))
	rewriteFile(t, cert, readFileOf(t, cert)+sooner)
	if got := all[0].Expires(); !got.Equal(end.Add(-time.Second)) {
		t.Errorf("with one that ends a second sooner: got %v, want %v", got, end.Add(-time.Second))
	}
	rewriteFile(t, cert, "")
	if got := all[0].Expires(); !got.Equal(end.Add(-time.Second)) {
		t.Errorf("while the file is empty: got %v, want %v", got, end.Add(-time.Second))
	}
}
