//go:build chaos

package chaos_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// skewVariable is the environment variable that shifts a scanner's clock, in seconds.
const skewVariable = "DUEFLEET_TEST_CLOCK_SKEW"

// TestClockOff: one scanner's clock is an hour ahead or behind, the other's is right.
// Redis's clock decides, so nothing is early or late.
func TestClockOff(t *testing.T) {
	skewed := buildSkewed(t)
	for name, skew := range map[string]string{"ahead": "3600", "behind": "-3600"} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t, options{scanners: 1})
			r.startBinary(skewed, 1, skewVariable+"="+skew)
			checkSkew(t, r.scanners[1].Log(), strings.HasPrefix(skew, "-"))
			r.begin()
			n := r.arrivals.count("orders")
			r.lasts(5 * time.Second)
			if p99 := r.arrivals.since("orders", n).At(0.99); p99 > time.Second {
				t.Errorf("lateness p99 is %s while another scanner's clock is off", p99)
			}
			r.verdict("scanner: its clock an hour "+name, allowance{})
		})
	}
}

// buildSkewed builds a scanner whose time.Now is off by skewVariable. It patches Go's
// source, because Go reads the clock without the C library, so LD_PRELOAD has no effect.
func buildSkewed(t *testing.T) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	check.OK(t, err)
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original) //nolint:gosec // Go's own source
	check.OK(t, err)
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if !strings.Contains(string(source), now) {
		t.Fatalf("%s has another Now than this test knows", original)
	}
	changed := strings.Replace(string(source), now, now+"\tsec += skew\n", 1) + `
var skew = func() int64 {
	text, _ := syscall.Getenv("` + skewVariable + `")
	d, _ := ParseDuration(text + "s")
	return int64(d / Second)
}()
`
	changed = strings.Replace(changed, "import (", "import (\n\t\"syscall\"", 1)
	dir := t.TempDir()
	patched, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	doc, err := json.Marshal(map[string]any{"Replace": map[string]string{original: patched}})
	check.OK(t, err)
	check.OK(t, os.WriteFile(patched, []byte(changed), 0o600))
	check.OK(t, os.WriteFile(overlay, doc, 0o600))
	binary := filepath.Join(dir, "scanner")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", binary, "./cmd/scanner") //nolint:gosec // our own arguments
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOGC=400")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build a scanner with a clock that is off: %v: %s", err, out)
	}
	return binary
}

// checkSkew checks in the scanner's log that its clock really is off.
func checkSkew(t *testing.T, path string, behind bool) {
	t.Helper()
	log, err := os.ReadFile(path) //nolint:gosec // a log of ours
	check.OK(t, err)
	word, _, _ := strings.Cut(strings.TrimPrefix(string(log), "time="), " ")
	at, err := time.Parse(time.RFC3339Nano, word)
	if err != nil {
		t.Fatalf("the log begins with %q", word)
	}
	off := time.Until(at)
	if behind {
		off = -off
	}
	if off < 50*time.Minute || off > 70*time.Minute {
		t.Fatalf("the scanner's clock is off by %s, want an hour: the fault had no effect", off)
	}
}
