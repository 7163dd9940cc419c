package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

const unit = "duefleet-scanner@.service"

// TestUnit: systemd accepts the unit, with and without credentials, and rates its
// security well.
func TestUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		skip(t, "systemd-analyze is not there; on Debian: apt-get install systemd")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, unit)
	// systemd checks that the program exists.
	text := strings.ReplaceAll(file(t, "deploy/systemd/"+unit), "/usr/local/bin/scanner", programs.Scanner)
	check.OK(t, os.WriteFile(path, []byte(text), 0o600))
	must(t, command(t, nil, analyze, "verify", "--man=no", path))
	must(t, command(t, nil, analyze, "security", "--offline=true", "--no-pager", "--threshold=15", path))

	check.OK(t, os.Mkdir(path+".d", 0o700))
	check.OK(t, os.WriteFile(filepath.Join(path+".d", "credentials.conf"),
		[]byte(file(t, "deploy/systemd/credentials.conf")), 0o600))
	must(t, command(t, nil, analyze, "verify", "--man=no", path))

	// Check that systemd-analyze does notice mistakes.
	check.OK(t, os.WriteFile(path, []byte(strings.Replace(text, "ExecStart=", "ExecStart=relative/", 1)),
		0o600))
	refused(t, command(t, nil, analyze, "verify", "--man=no", path))
}

// TestUnitStopsInTime: systemd waits longer than shutdown_timeout before it kills, and
// sends SIGTERM to the scanner only.
func TestUnitStopsInTime(t *testing.T) {
	t.Parallel()
	text := file(t, "deploy/systemd/"+unit)
	for _, line := range []string{"TimeoutStopSec=20s\n", "KillMode=mixed\n", "ProtectSystem=strict\n",
		"DynamicUser=yes\n", "NoNewPrivileges=yes\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("the unit lacks %q", line)
		}
	}
	if !strings.Contains(file(t, "config.example.yaml"), "\nshutdown_timeout: 15s") {
		t.Error("shutdown_timeout is no longer 15s, on which the unit's TimeoutStopSec relies")
	}
}

// TestUnitIsNeverGivenUp: systemd restarts a scanner for ever, first soon and then less
// often. The start limit must be in [Unit]; systemd ignores it elsewhere.
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
