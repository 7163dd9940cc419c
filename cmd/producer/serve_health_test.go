package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// asked returns the status and the answer of a path of a server's --admin-listen.
func (s *served) asked(t *testing.T, path string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.admin+path, nil)
	check.OK(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	check.OK(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	check.OK(t, err)
	return resp.StatusCode, string(text)
}

// TestServeMeasuresItsBuildAndCertificates, its own one and those for Redis.
func TestServeMeasuresItsBuildAndCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, ca := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")
	servertest.WriteCertificate(t, cert, key)
	servertest.WriteCertificate(t, ca, filepath.Join(dir, "ca.key"))
	conf := writeFile(t, "config.yaml", fmt.Sprintf("redis: {tls: {enabled: true, ca_file: %q}}", ca))
	s := newSandbox(t).serve("--config", conf, "--tls-cert", cert, "--tls-key", key)
	_, metrics := s.asked(t, "/metrics")
	for _, want := range []string{
		`(?m)^duefleet_build_info\{go_version="go[^"]+",revision="[^"]+",version="[^"]+"\} 1$`,
		`(?m)^duefleet_certificate_expiry_timestamp_seconds\{file="` + regexp.QuoteMeta(cert) + `",use="http"\} 1\.\d+e\+09$`,
		`(?m)^duefleet_certificate_expiry_timestamp_seconds\{file="` + regexp.QuoteMeta(ca) + `",use="redis"\} 1\.\d+e\+09$`,
	} {
		if !regexp.MustCompile(want).MatchString(metrics) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	s.stop(t)
}

// TestServeIsNotReadyWhileItStops: /readyz says so until the last request is answered.
func TestServeIsNotReadyWhileItStops(t *testing.T) {
	t.Parallel()
	s := newSandbox(t).serve()
	check.Until(t, "readiness", func() bool { status, _ := s.asked(t, "/readyz"); return status == http.StatusOK })
	conn, err := net.Dial("tcp", s.addr)
	check.OK(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "PUT /v1/topics/orders/tasks/a?in=1h HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Length: 5\r\n\r\nbe", testToken)
	check.OK(t, err)
	check.Until(t, "the request", func() bool {
		_, metrics := s.asked(t, "/metrics")
		return strings.Contains(metrics, "\nduefleet_http_active_requests 1\n")
	})
	check.OK(t, s.cmd.Process.Signal(syscall.SIGTERM))
	check.Until(t, "the stop", func() bool {
		status, text := s.asked(t, "/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "serving: down (required): stopping\n")
	})
	_, err = io.WriteString(conn, "gun")
	check.OK(t, err)
	answer, err := io.ReadAll(conn)
	check.OK(t, err)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK\r\n") {
		t.Errorf("answer %q", answer)
	}
	check.OK(t, s.cmd.Wait())
}

// TestServeNamesTheFlagOfATakenPort, and no key of a configuration.
func TestServeNamesTheFlagOfATakenPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	defer taken.Close()
	addr := taken.Addr().String()
	c := newSandbox(t)
	r := c.run("", "serve", "--listen", "127.0.0.1:0", "--admin-listen", addr)
	wantError(t, r, 1, "--admin-listen "+addr+" is taken, perhaps by another server: stop that one, or give this one "+
		"its own address with --admin-listen: ")
	if strings.Contains(r.stderr, "admin.listen") || strings.Contains(r.stderr, "DUEFLEET_") {
		t.Errorf("standard error: %s", r.stderr)
	}
	r = c.run("", "serve", "--listen", "127.0.0.1:0", "--admin-listen", "9341")
	wantError(t, r, 1, `--admin-listen "9341": must be host:port`)
}
