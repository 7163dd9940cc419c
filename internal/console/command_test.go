package console

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/wait"
)

// TestTheCommandEndsWithStreamsOpen: scanner console prints its address, serves, examines as
// scanner doctor does, and ends within two seconds of SIGTERM.
func TestTheCommandEndsWithStreamsOpen(t *testing.T) {
	t.Parallel()
	program := scannerProgram(t)
	r := fixture.New(t)
	r.Serve(t, 1)
	config := writeFile(t, fmt.Sprintf("redis: {addrs: ['%s'], prefix: '%s'}\n"+
		"console: {listen: '127.0.0.1:0', admin_listen: '127.0.0.1:0'}\n", r.Addr, r.Prefix))
	cmd := exec.Command(program, "console", "--config", config)
	out, err := cmd.StdoutPipe()
	check.OK(t, err)
	var log wait.Log
	cmd.Stderr = &log
	check.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	check.OK(t, err)
	at, found := strings.CutPrefix(strings.TrimSpace(line), "console: ")
	if !found {
		t.Fatalf("it printed %q", line)
	}
	s := &site{t: t, url: strings.TrimSuffix(at, "/"), client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(s.client.CloseIdleConnections)
	_, page, _ := s.ask(http.MethodGet, "/", nil)
	contains(t, page, `id="topic-orders"`)
	wait.Receive(t, "an event", s.events(t.Context(), "/stream/"))
	s.ask(http.MethodPost, "/doctor", url.Values{})
	wait.For(t, "what scanner doctor finds", func() bool {
		_, page, _ = s.ask(http.MethodGet, "/doctor", nil)
		return strings.Contains(page, "<code>redis.")
	})
	contains(t, page, "checks found something wrong", "<code>config</code>")
	admin := regexp.MustCompile(`admin=(127\.0\.0\.1:\d+)`).FindStringSubmatch(log.String())
	if admin == nil {
		t.Fatalf("the log has no address of the metrics:\n%s", &log)
	}
	health := &site{t: t, url: "http://" + admin[1], client: s.client}
	for path, want := range map[string]string{"/livez": "", "/readyz": "", "/metrics": "process_start_time_seconds"} {
		status, body, _ := health.ask(http.MethodGet, path, nil)
		check.Equal(t, path, status, http.StatusOK)
		contains(t, body, want)
	}
	start := time.Now()
	check.OK(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, &log)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
}
