//go:build chaos

package inbox_test

import (
	"flag"
	"testing"
	"time"

	"github.com/duefleet/duefleet/outbox/internal/dbtest"
)

var ledgerLength = flag.Duration("length", time.Minute, "how long the parts of the outbox are killed")

// TestChaosLedger kills each part again and again, at 500 commits a second. The database syncs
// each commit.
func TestChaosLedger(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	t.Run("PostgreSQL", func(t *testing.T) { killForLong(t, dbtest.PostgreSQL, "-c", "fsync=on") })
	t.Run("MariaDB", func(t *testing.T) { killForLong(t, dbtest.MariaDB, "--innodb-flush-log-at-trx-commit=1") })
}

func killForLong(t *testing.T, kind dbtest.Kind, sync ...string) {
	t.Helper()
	r := newRun(t, kind, 500, 500, sync...)
	for end := time.Now().Add(*ledgerLength); time.Now().Before(end); {
		r.killAll()
	}
	r.verdict()
	if len(r.read("consumer")[repeated]) == 0 {
		t.Error("no repeat checked the inbox")
	}
}
