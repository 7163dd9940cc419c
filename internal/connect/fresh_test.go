package connect

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/test/check"
)

func rewriteFile(t *testing.T, path, content string) {
	t.Helper()
	check.OK(t, os.WriteFile(path, []byte(content), 0o600))
}

func readFileOf(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	check.OK(t, err)
	return string(content)
}

// TestSecretsAreReadAgain: each call reads the file. If it is missing or empty for a moment,
// the last good value stays, and that is logged once.
func TestSecretsAreReadAgain(t *testing.T) {
	t.Parallel()
	password, urls, token := writeFile(t, "p1\n"), writeFile(t, "amqps://u:p1@h/"), writeFile(t, "t1")
	cfg := load(t, "redis: {username: u, password_file: "+password+"}\nconsul: {token_file: "+token+"}\n"+
		"rabbitmq: {urls_file: "+urls+", tls: {enabled: true}}")
	log := &check.Log{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	options, err := Redis(cfg.Redis, logger)
	check.OK(t, err)
	readURLs, _, err := RabbitMQ(cfg.RabbitMQ, logger)
	check.OK(t, err)
	readToken, _, err := Consul(cfg.Consul, logger)
	check.OK(t, err)
	want := func(when, wantPassword, wantURL, wantToken string) {
		t.Helper()
		for range 3 {
			user, got, err := options.CredentialsProviderContext(t.Context())
			if user != "u" || got != wantPassword || err != nil {
				t.Errorf("%s: user %s, password %s, %v; want u and %s", when, user, got, err, wantPassword)
			}
			if got := readURLs(); !slices.Equal(got, []string{wantURL}) {
				t.Errorf("%s: URLs %q, want %q", when, got, wantURL)
			}
			if got := readToken(); got != wantToken {
				t.Errorf("%s: token %q, want %q", when, got, wantToken)
			}
		}
	}
	want("at first", "p1", "amqps://u:p1@h/", "t1")
	rewriteFile(t, password, "")
	rewriteFile(t, urls, "amqp://u:p2@h/") // without TLS
	check.OK(t, os.Remove(token))
	want("while files can't be used", "p1", "amqps://u:p1@h/", "t1")
	for _, key := range []string{"redis.password_file", "rabbitmq.urls_file", "consul.token_file"} {
		if n := strings.Count(log.String(), key); n != 1 {
			t.Errorf("the log names %s %d times, want once:\n%s", key, n, log)
		}
	}
	rewriteFile(t, password, "p2\n")
	rewriteFile(t, urls, "amqps://u:p2@h/\n")
	rewriteFile(t, token, "t2\n")
	want("after a rotation", "p2", "amqps://u:p2@h/", "t2")
	if text := log.String(); strings.Count(text, "again") != 3 || strings.Contains(text, "p2") ||
		strings.Contains(text, "t2") {
		t.Errorf("the log must say of three files that they can be used again, and no secret:\n%s", text)
	}
}

// TestClustersAndSentinelsReadAgain: go-redis passes the functions to each kind of client.
func TestClustersAndSentinelsReadAgain(t *testing.T) {
	t.Parallel()
	password := writeFile(t, "p")
	for _, servers := range []string{"addrs: [a:1]", "addrs: [a:1, b:1]", "addrs: [a:1], master_name: m"} {
		cfg := load(t, "redis: {"+servers+", password_file: "+password+"}")
		options, err := Redis(cfg.Redis, nil)
		check.OK(t, err)
		client := redis.NewUniversalClient(options)
		var asked func(context.Context) (string, string, error)
		var dialer func(context.Context, string, string) (net.Conn, error)
		switch c := client.(type) {
		case *redis.ClusterClient:
			asked, dialer = c.Options().CredentialsProviderContext, c.Options().Dialer
		case *redis.Client:
			asked, dialer = c.Options().CredentialsProviderContext, c.Options().Dialer
		}
		if asked == nil || dialer == nil {
			t.Errorf("%s: the client has no functions to read files again", servers)
		}
		_ = client.Close()
	}
}

// TestCertificatesAreReadAgain: a server with a new authority is trusted once ca_file has
// that authority. The server's name must match as before.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	first, firstKey := certificate(t)
	second, secondKey := certificate(t)
	ca := writeFile(t, readFileOf(t, first))
	log := &check.Log{}
	r := config.Redis{TLS: config.TLS{Enabled: true, CAFile: ca, CertFile: first, KeyFile: firstKey,
		ServerName: "redis.test"}}
	options, err := Redis(r, slog.New(slog.NewTextHandler(log, nil)))
	check.OK(t, err)
	shown := &tls.Config{MinVersion: tls.VersionTLS12}
	show := func(cert, key string) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		check.OK(t, err)
		shown.Certificates = []tls.Certificate{pair}
	}
	connect := func() error {
		addr := serveTLS(t, shown.Clone())
		conn, err := options.Dialer(t.Context(), "tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	show(first, firstKey)
	if err := connect(); err != nil {
		t.Errorf("at first: %v", err)
	}
	show(second, secondKey)
	if err := connect(); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority that ca_file does not have: %v", err)
	}
	rewriteFile(t, ca, "-----BEGIN CERT")
	show(first, firstKey)
	for range 3 {
		if err := connect(); err != nil {
			t.Errorf("while ca_file is half written: %v", err)
		}
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(),
		"no PEM certificate in "+ca) {
		t.Errorf("the log warns %d times, want once, of %s:\n%s", n, ca, log)
	}
	rewriteFile(t, ca, readFileOf(t, second))
	show(second, secondKey)
	if err := connect(); err != nil {
		t.Errorf("after the rotation: %v", err)
	}
	r.TLS.ServerName = ""
	options, err = Redis(r, nil)
	check.OK(t, err)
	if err := connect(); err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("a certificate for another name than the host dialled: %v", err)
	}
}

// serveTLS accepts connections until the end of the test.
func serveTLS(t *testing.T, config *tls.Config) (addr string) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	check.OK(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = conn.Read(make([]byte, 1)); _ = conn.Close() }()
		}
	}()
	return listener.Addr().String()
}
