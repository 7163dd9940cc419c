package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestRelayRunsTheProgramOfTheOutbox: with all arguments, those before the verb included. If
// it isn't installed, the error says how to build it.
func TestRelayRunsTheProgramOfTheOutbox(t *testing.T) {
	t.Parallel()
	args := []string{"--config", "c.yaml", "relay", "--batch", "7", "--help"}
	missing := finish(t, command(t, nil, args...))
	check.Equal(t, "the exit code", missing.code, 1)
	check.Equal(t, "stderr", missing.stderr, "producer: duefleet-relay is neither next to producer nor in PATH; "+
		"in a clone of duefleet, \"make relay\" builds bin/duefleet-relay\n")
	dir := t.TempDir()
	script := []byte("#!/bin/sh\necho \"$@\"\nexit 7\n")
	check.OK(t, os.WriteFile(filepath.Join(dir, "duefleet-relay"), script, 0o700)) //nolint:gosec // it is a program
	found := finish(t, command(t, []string{"PATH=" + dir}, args...))
	check.Equal(t, "the exit code", found.code, 7)
	check.Equal(t, "the arguments", found.stdout, "--config c.yaml --batch 7 --help\n")
}
