//go:build measure

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestMeasureIdleConnections: a connection that is idle after a request takes at most 64 KiB,
// by the peaks of servers with one and with 1,000.
func TestMeasureIdleConnections(t *testing.T) {
	limit(t, 64<<10, "http", &http.Transport{})
}

// TestMeasureIdleTLS: with TLS a connection takes at most 96 KiB, with HTTP/1.1 and with HTTP/2.
func TestMeasureIdleTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	trust := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: servertest.WriteCertificate(t, cert, key)}
	for name, second := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			limit(t, 96<<10, "https", &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: second},
				"--tls-cert", cert, "--tls-key", key)
		})
	}
}

// limit fails if a connection of the transport takes more than a number of bytes.
func limit(t *testing.T, each int64, scheme string, transport *http.Transport, flags ...string) {
	t.Helper()
	const many = 1000
	one, all := idle(t, 1, scheme, transport, flags...), idle(t, many, scheme, transport, flags...)
	t.Logf("peak with one connection %d MiB, with %d connections %d MiB: %d KiB each", one>>20, many, all>>20,
		(all-one)/many>>10)
	if all-one > many*each {
		t.Errorf("the limit is %d KiB each", each>>10)
	}
}

// idle returns the peak memory, in bytes, of a server with n connections that are idle after a
// request.
func idle(t *testing.T, n int, scheme string, transport *http.Transport, flags ...string) int64 {
	t.Helper()
	s := newSandbox(t).serve(append(flags, "--max-connections", fmt.Sprint(n))...)
	for i := range n {
		client := &http.Client{Transport: transport.Clone()}
		defer client.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			fmt.Sprintf("%s://%s/v1/topics/orders/tasks/o-%d", scheme, s.addr, i), nil)
		check.OK(t, err)
		req.Header.Set("Authorization", "Bearer "+testToken)
		resp, err := client.Do(req)
		check.OK(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		check.OK(t, err)
		check.OK(t, resp.Body.Close())
		check.Equal(t, "status", resp.StatusCode, http.StatusNotFound)
	}
	// A process that ended has the peak of the test, too, which forked it.
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatalf("how much memory the server holds is not known on this system: %v", err)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(peak)[0], 10, 64)
	check.OK(t, err)
	s.stop(t)
	return kib << 10
}
