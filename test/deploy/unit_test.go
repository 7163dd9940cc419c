package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const unit = "duefleet-scanner@.service"

// TestUnit: systemd takes the unit, with and without credentials, and counts it
// among the well-contained ones.
func TestUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		skip(t, "systemd-analyze is not there; on Debian: apt-get install systemd")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, unit)
	// systemd looks whether the program is there.
	text := strings.ReplaceAll(file(t, "deploy/systemd/"+unit), "/usr/local/bin/scanner", programs.Scanner)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, command(t, nil, analyze, "verify", "--man=no", path))
	must(t, command(t, nil, analyze, "security", "--offline=true", "--no-pager", "--threshold=15", path))

	if err := os.Mkdir(path+".d", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path+".d", "credentials.conf"), []byte(file(t, "deploy/systemd/credentials.conf")), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, command(t, nil, analyze, "verify", "--man=no", path))

	// The check itself: it would notice.
	if err := os.WriteFile(path, []byte(strings.Replace(text, "ExecStart=", "ExecStart=relative/", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, command(t, nil, analyze, "verify", "--man=no", path))
}

// TestUnitStopsInTime: systemd waits longer than a scanner's shutdown_timeout
// before it kills, and tells the scanner alone.
func TestUnitStopsInTime(t *testing.T) {
	t.Parallel()
	text := file(t, "deploy/systemd/"+unit)
	for _, line := range []string{"TimeoutStopSec=20s\n", "KillMode=mixed\n", "ProtectSystem=strict\n", "DynamicUser=yes\n", "NoNewPrivileges=yes\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("the unit lacks %q", line)
		}
	}
	if !strings.Contains(file(t, "config.example.yaml"), "\nshutdown_timeout: 15s") {
		t.Error("shutdown_timeout is not 15s any more, which the unit's TimeoutStopSec relies on")
	}
}

// TestUnitIsNeverGivenUp: systemd starts a scanner again for ever, first soon and then
// less often. The start limit belongs to [Unit]: systemd ignores it elsewhere.
func TestUnitIsNeverGivenUp(t *testing.T) {
	t.Parallel()
	unit, service, found := strings.Cut(file(t, "deploy/systemd/"+unit), "\n[Service]\n")
	if !found || !strings.Contains(unit, "\nStartLimitIntervalSec=0\n") {
		t.Error("[Unit] lacks StartLimitIntervalSec=0")
	}
	for _, line := range []string{"Restart=always\n", "RestartSec=1s\n", "RestartSteps=5\n", "RestartMaxDelaySec=30s\n"} {
		if !strings.Contains(service, "\n"+line) {
			t.Errorf("[Service] lacks %q", line)
		}
	}
}
