package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// MariaDB is a MariaDB server with its own data folder, which Close removes.
type MariaDB struct {
	server
	addr string
	dir  string
}

// StartMariaDB makes the data folder, and returns when the server answers. ctx limits the
// start only. args are added to the server's. MariaDB refuses to run as root. So if this
// process is root, the server runs as the user mysql of Debian's package, in a folder of
// that user.
func StartMariaDB(ctx context.Context, args ...string) (*MariaDB, error) {
	programs := map[string]string{"mariadb-install-db": "", "mariadbd": "", "mariadb-admin": ""}
	for name := range programs {
		path, err := Find(name)
		if err != nil {
			return nil, err
		}
		programs[name] = path
	}
	dir, err := TempDir("mariadb")
	if err != nil {
		return nil, fmt.Errorf("start MariaDB: %w", err)
	}
	m := &MariaDB{dir: dir}
	if err := m.begin(ctx, programs, args); err != nil {
		return nil, errors.Join(fmt.Errorf("start MariaDB: %w", err), os.RemoveAll(dir))
	}
	return m, nil
}

func (m *MariaDB) begin(ctx context.Context, programs map[string]string, args []string) error {
	owner, err := ordinaryUser("mysql")
	if err != nil {
		return err
	}
	if owner != nil {
		if err := os.Chown(m.dir, int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	// The server must not use a folder for temporary files that its user can't write to.
	data, env := filepath.Join(m.dir, "data"), append(os.Environ(), "TMPDIR="+m.dir)
	install := exec.CommandContext(ctx, programs["mariadb-install-db"], //nolint:gosec // MariaDB's own
		"--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db",
		"--innodb-flush-log-at-trx-commit=0")
	install.Dir, install.Env, install.SysProcAttr = m.dir, env, &syscall.SysProcAttr{Credential: owner}
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w: %s", err, out)
	}
	ports := &ports{}
	port, err := ports.choose(ctx, 0)
	if err != nil {
		return err
	}
	m.addr = address(port)
	m.server = server{
		main: &process{
			name: "mariadbd", path: programs["mariadbd"], env: env, dir: m.dir,
			log: filepath.Join(m.dir, "mariadb.log"),
			args: append([]string{"--no-defaults", "--datadir=" + data, "--bind-address=127.0.0.1",
				"--port=" + strconv.Itoa(port), "--socket=" + filepath.Join(m.dir, "socket"), "--skip-name-resolve",
				"--innodb-flush-log-at-trx-commit=2", "--max-connections=500"}, args...),
			user: owner,
		},
		listens: []string{m.addr},
		ready: func(ctx context.Context) error {
			return exec.CommandContext(ctx, programs["mariadb-admin"], "--no-defaults", "-h", "127.0.0.1", //nolint:gosec // see above
				"-P", strconv.Itoa(port), "-u", "root", "ping").Run()
		},
		ports: ports,
	}
	return m.start(ctx)
}

// DSN returns the data source name of a database for the driver go-sql-driver/mysql. "" is no
// database. The user root needs no password.
func (m *MariaDB) DSN(database string) string { return "root@tcp(" + m.addr + ")/" + database }

// Close stops the server and removes its files.
func (m *MariaDB) Close(ctx context.Context) error {
	return errors.Join(m.Stop(ctx), os.RemoveAll(m.dir))
}
