package servers_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestPostgres: a server starts for root and for other users.
func TestPostgres(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "postgres", "initdb", "pg_isready", "psql")
	server, err := servers.StartPostgres(t.Context())
	check.OK(t, err)
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	checkDatabase(t, server, "psql", "-qtA", "-d", server.URL(), "-c")
}

// TestMariaDB: a server starts for root and for other users.
func TestMariaDB(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "mariadbd", "mariadb-install-db", "mariadb-admin", "mariadb")
	server, err := servers.StartMariaDB(t.Context())
	check.OK(t, err)
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	var port int
	_, err = fmt.Sscanf(server.DSN(""), "root@tcp(127.0.0.1:%d)", &port)
	check.OK(t, err)
	check.Equal(t, "DSN", server.DSN("kept"), fmt.Sprintf("root@tcp(127.0.0.1:%d)/kept", port))
	checkDatabase(t, server, "mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", strconv.Itoa(port), "-u", "root",
		"-N", "-B", "-e")
}

// checkDatabase checks that a server keeps committed rows after a restart, and leaves no
// files behind. The client executes the statement that follows its arguments.
func checkDatabase(t *testing.T, server interface {
	Restart(ctx context.Context) error
	Close(ctx context.Context) error
	Log() string
	PID() int
}, client string, args ...string) {
	t.Helper()
	path, err := servers.Find(client)
	check.OK(t, err)
	ask := func(statement string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), path, append(args, statement)...).CombinedOutput() //nolint:gosec // ours
		if err != nil {
			t.Fatalf("%s: %v: %s", statement, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	ask("CREATE SCHEMA kept")
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
