package servers_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestPostgres: a server starts for root and for other users, keeps committed rows after
// a restart, and leaves no files behind.
func TestPostgres(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "postgres", "initdb", "pg_isready", "psql")
	psql, err := servers.Find("psql")
	check.OK(t, err)
	server, err := servers.StartPostgres(t.Context())
	check.OK(t, err)
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	ask := func(statement string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), psql, "-qtA", "-d", server.URL(), "-c", statement).CombinedOutput() //nolint:gosec // ours
		if err != nil {
			t.Fatalf("%s: %v: %s", statement, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	ask("CREATE TABLE kept AS SELECT 42 AS n")
	check.OK(t, server.Restart(t.Context()))
	if got := ask("SELECT n FROM kept"); got != "42" {
		t.Errorf("after a restart it holds %q", got)
	}
	files := filepath.Dir(server.Log())
	check.OK(t, server.Close(t.Context()))
	if _, err := os.Stat(files); !os.IsNotExist(err) {
		t.Errorf("its files are left: %v", err)
	}
	if server.PID() != 0 {
		t.Error("it still runs")
	}
}
