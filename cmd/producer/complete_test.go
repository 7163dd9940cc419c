package main

import (
	"strings"
	"testing"
)

// TestShellsCompleteTopics: shells complete the topics that Redis knows, by flag or
// argument, and none while Redis is away.
func TestShellsCompleteTopics(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	at := []string{"__completeNoDesc", "--redis-addr", c.addr, "--redis-prefix", c.prefix}
	for _, line := range [][]string{{"get", ""}, {"schedule", "--topic", ""}, {"cancel", ""}, {"load", ""},
		{"export", ""}, {"export", "mails", ""}, {"export", "--topic", ""}} {
		if r := finish(t, command(t, nil, append(at, line...)...)); r.code != 0 ||
			!strings.HasSuffix("\n"+r.stdout, "\norders\n:4\n") {
			t.Errorf("%q is completed by %q, code %d: %s", line, r.stdout, r.code, r.stderr)
		}
	}
	if r := finish(t, command(t, nil, append(at, "get", "orders", "")...)); strings.Contains(r.stdout, "orders") {
		t.Errorf("a second argument is completed by %q", r.stdout)
	}
	if r := finish(t, command(t, nil, "__completeNoDesc", "--redis-addr", "127.0.0.1:1", "schedule", "--topic",
		"")); r.code != 0 || r.stdout != ":4\n" {
		t.Errorf("without Redis it is completed by %q, code %d", r.stdout, r.code)
	}
}
