package servers_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestMariaDB: a server starts for root and for other users, keeps committed rows after a
// restart, and leaves no files behind.
func TestMariaDB(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "mariadbd", "mariadb-install-db", "mariadb-admin", "mariadb")
	client, err := servers.Find("mariadb")
	check.OK(t, err)
	server, err := servers.StartMariaDB(t.Context())
	check.OK(t, err)
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	addr, ok := strings.CutPrefix(server.DSN("kept"), "root@tcp(")
	check.Equal(t, "the DSN begins with the user", ok, true)
	addr, ok = strings.CutSuffix(addr, ")/kept")
	check.Equal(t, "the DSN ends with the database", ok, true)
	_, port, err := net.SplitHostPort(addr)
	check.OK(t, err)
	ask := func(statement string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), client, "--no-defaults", "-h", "127.0.0.1", "-P", port, //nolint:gosec // ours
			"-u", "root", "-N", "-B", "-e", statement).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", statement, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	ask("CREATE DATABASE kept")
	ask("CREATE TABLE kept.kept AS SELECT 42 AS n")
	check.OK(t, server.Restart(t.Context()))
	check.Equal(t, "after a restart", ask("SELECT n FROM kept.kept"), "42")
	files := filepath.Dir(server.Log())
	check.OK(t, server.Close(t.Context()))
	if _, err := os.Stat(files); !os.IsNotExist(err) {
		t.Errorf("its files are left: %v", err)
	}
	check.Equal(t, "the process", server.PID(), 0)
}
