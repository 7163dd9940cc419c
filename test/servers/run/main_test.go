package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestCommand: the run ends with the command's exit code, so that a failed test fails
// make. The command sees the servers.
func TestCommand(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		code int
		fail bool
	}{
		"succeeds":       {args: []string{"sh", "-c", `test "$DUEFLEET_TEST_REDIS" = here`}},
		"fails":          {args: []string{"sh", "-c", "exit 7"}, code: 7},
		"is killed":      {args: []string{"sh", "-c", "kill -9 $$"}, code: exitFailed, fail: true},
		"does not exist": {args: []string{"/no/such/command"}, code: exitFailed, fail: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, err := command(t.Context(), tt.args, []string{"DUEFLEET_TEST_REDIS=here"})
			if code != tt.code || (err != nil) != tt.fail {
				t.Errorf("got code %d, error %v; want code %d, an error: %t", code, err, tt.code, tt.fail)
			}
		})
	}
}

// TestCommandInterrupted: an interrupt ends the command and its children, and the run
// fails with the reason.
func TestCommandInterrupted(t *testing.T) {
	t.Parallel()
	held := filepath.Join(t.TempDir(), "held")
	check.OK(t, syscall.Mkfifo(held, 0o600))
	ctx, interrupt := context.WithCancelCause(t.Context())
	reason := errors.New("the reason")
	opened := make(chan *os.File, 1)
	go func() {
		f, _ := os.Open(held) //nolint:gosec // a file of this test; opens when there is a writer
		opened <- f
		interrupt(reason)
	}()
	code, err := command(ctx, []string{"sh", "-c", `sleep 1000 >"$HELD" & wait`}, []string{"HELD=" + held})
	if code == 0 || !errors.Is(err, reason) {
		t.Errorf("got code %d, error %v; want a failure with its reason", code, err)
	}
	f := check.Receive(t, "the command's child", opened)
	defer f.Close()
	// The end of the file comes once no process has it open for writing.
	if _, err := io.Copy(io.Discard, f); err != nil {
		t.Error(err)
	}
}

// TestAServerThatEndsIsNamed: if a server ends, the run fails with an error that names
// it, rather than with failures of its tests.
func TestAServerThatEndsIsNamed(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "redis-server")
	redis, err := servers.StartRedis(t.Context(), servers.RedisConfig{Dir: t.TempDir()})
	check.OK(t, err)
	set := &shared{redis: redis}
	ended := make(chan error, 1)
	go func() { ended <- set.await(t.Context()) }()
	check.OK(t, redis.Kill())
	if err := check.Receive(t, "the run to notice", ended); err == nil || !strings.Contains(err.Error(), "redis.log") {
		t.Errorf("got %v, want an error that names the server's log", err)
	}
}
