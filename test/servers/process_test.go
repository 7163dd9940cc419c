package servers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestStopKillsWhenOutOfTime: stop kills a child that doesn't end in time, and returns an
// error.
func TestStopKillsWhenOutOfTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sh, err := exec.LookPath("sh")
	check.OK(t, err)
	deaf := &process{
		name: "deaf", path: sh, dir: dir, log: filepath.Join(dir, "log"),
		args: []string{"-c", "trap '' TERM; echo deaf; while :; do sleep 60; done"}, env: os.Environ(),
	}
	check.OK(t, deaf.start())
	t.Cleanup(func() { _ = deaf.kill() })
	check.Until(t, "the child to ignore SIGTERM", func() bool { return strings.Contains(Tail(deaf.log), "deaf") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := deaf.stop(ctx); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v, want an error that says that the child was killed", err)
	}
	if deaf.pid() != 0 {
		t.Error("the child still runs")
	}
}

// TestTempDirSweeps: TempDir removes the folders of processes that ended and keeps the
// others. A process in another container may have an ID that nobody has here.
func TestTempDirSweeps(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	gone := exec.CommandContext(t.Context(), "true")
	check.OK(t, gone.Run())
	left := filepath.Join(os.TempDir(), "duefleet-sweep-"+strconv.Itoa(gone.Process.Pid)+"-1")
	other := filepath.Join(os.TempDir(), "duefleet-other-"+strconv.Itoa(gone.Process.Pid)+"-1")
	contained := filepath.Join(os.TempDir(), "duefleet-sweep-"+strconv.Itoa(gone.Process.Pid)+"-2")
	for _, dir := range []string{left, other, contained} {
		check.OK(t, os.Mkdir(dir, 0o750))
	}
	unlock, err := lock(contained, 0)
	check.OK(t, err)
	defer unlock()
	first, err := TempDir("sweep")
	check.OK(t, err)
	_, err = TempDir("sweep")
	check.OK(t, err)
	if _, err := os.Stat(left); err == nil {
		t.Error("the folder of a process that ended is still there")
	}
	for _, dir := range []string{first, other, contained} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("a folder that is in use, or somebody else's, is gone: %v", err)
		}
	}
}
