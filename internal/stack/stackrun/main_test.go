package main

import (
	"context"
	"testing"
	"time"
)

// TestCommand: the run ends as its command does, so that a failed test fails
// make, and the command sees the servers.
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

// TestCommandInterrupted: an interrupt ends the command with SIGTERM, and the
// run fails.
func TestCommandInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	code, err := command(ctx, []string{"sleep", "60"}, nil)
	if code == 0 || err == nil {
		t.Errorf("got code %d, error %v; want a failure", code, err)
	}
}
