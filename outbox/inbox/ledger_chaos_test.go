//go:build chaos

package inbox_test

import (
	"flag"
	"testing"
	"time"
)

var ledgerLength = flag.Duration("length", time.Minute, "how long the parts of the outbox are killed")

// TestChaosLedger kills each part again and again, at 500 commits a second. PostgreSQL syncs
// each commit.
func TestChaosLedger(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	r := newRun(t, 500, 500, "-c", "fsync=on")
	for end := time.Now().Add(*ledgerLength); time.Now().Before(end); {
		r.killAll()
	}
	r.verdict()
	if len(r.read("consumer")[repeated]) == 0 {
		t.Error("no repeat checked the inbox")
	}
}
