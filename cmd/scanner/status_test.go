package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
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
	check.Until(t, "status to find the fleet healthy", func() bool {
		if _, err := store.Registry().Heartbeat(t.Context(), "a", balance.Silence, time.Minute); err != nil {
			t.Fatal(err)
		}
		code, _, told := status("--exit-code", "-o", "json")
		return code == 0 && told == ""
	})
}

// TestADeadScannerIsDegraded: one of three scanners is silent. Status names it as JSON and by
// its exit code, and doctor has a finding. Once the list has forgotten it, all is well.
func TestADeadScannerIsDegraded(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "topics: {}\n")
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"one", "two"} {
		o.member(name)
	}
	before := redis.Z{Score: float64(time.Now().Add(-time.Minute).UnixMilli()), Member: "three"}
	ok(o.rdb.ZAdd(t.Context(), o.prefix+":fleet", before).Err())
	_, err := o.store.Registry().Describe(t.Context(), "three", []byte(`{"instance":"three"}`))
	ok(err)
	code, text := o.call("status", "--exit-code", "-o", "json")
	if code != cli.Unhealthy || !strings.Contains(text, "not healthy: 1 of 3 scanners died") {
		t.Errorf("code %d: %s", code, text)
	}
	var s admin.Status
	ok(json.NewDecoder(strings.NewReader(text)).Decode(&s))
	if len(s.Problems) != 1 || s.Problems[0].Kind != problem.ScannerDead || s.Status != problem.Degraded ||
		s.Problems[0].Facts["scanners"] != "three" || s.Problems[0].Since.IsZero() || s.Problems[0].Advice == "" {
		t.Errorf("%s: %+v", s.Status, s.Problems)
	}
	o.finds("with a dead scanner", "fleet members", "fail: 1 of 3 scanners died, or don't reach Redis: three")
	ok(o.rdb.ZRem(t.Context(), o.prefix+":fleet", "three").Err())
	if code, text := o.call("status", "--exit-code"); code != cli.Done {
		t.Errorf("without it: code %d: %s", code, text)
	}
}
