package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
	"github.com/duefleet/duefleet/test/wait"
)

// TestStatusTellsByItsExitCode: --exit-code ends with 4 if no scanner is live. Then the
// reason is on standard error, and the whole status still on standard output. Once a
// scanner is live it ends with 0. Without the flag the exit code is always 0.
func TestStatusTellsByItsExitCode(t *testing.T) {
	t.Parallel()
	addr, prefix := servertest.Redis(t)
	path := writeFile(t, "config.yaml", fmt.Sprintf("redis: {addrs: [%s], prefix: %s}\n", addr, prefix))
	status := func(args ...string) (code int, out, told string) {
		var stdout, stderr bytes.Buffer
		code = run(t.Context(), append([]string{"status", "--config", path}, args...), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	if code, out, told := status("--exit-code"); code != cli.Unhealthy || !strings.Contains(out, "fleet:") ||
		!strings.Contains(told, "not healthy: no scanner runs") {
		t.Errorf("code %d\n%s%s", code, out, told)
	}
	if code, _, told := status(); code != 0 || told != "" {
		t.Errorf("without the flag: code %d, %s", code, told)
	}
	store := fixture.At(t, addr, prefix).Store
	wait.For(t, "status to find the fleet healthy", func() bool {
		if _, err := store.Heartbeat(t.Context(), "a", balance.Silence, time.Minute); err != nil {
			t.Fatal(err)
		}
		code, _, told := status("--exit-code", "-o", "json")
		return code == 0 && told == ""
	})
}
