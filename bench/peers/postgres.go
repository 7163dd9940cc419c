package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/test/fleet"
)

// postgresProgram returns the path of a PostgreSQL program: from PATH, or the newest
// version in Debian's folder for programs that aren't on PATH.
func postgresProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob(filepath.Join("/usr/lib/postgresql/*/bin", name))
	if err != nil || len(found) == 0 {
		return "", errors.New("PostgreSQL is not installed")
	}
	return found[len(found)-1], nil
}

func postgresMissing() error {
	for _, name := range []string{"postgres", "initdb"} {
		if _, err := postgresProgram(name); err != nil {
			return err
		}
	}
	return nil
}

// postgres is a PostgreSQL cluster in a folder of its own.
type postgres struct {
	dir  string
	attr *syscall.SysProcAttr
}

// startPostgres makes a cluster and starts it. It commits like the other stores: a write
// is first in memory, and on disk within a second.
func startPostgres(ctx context.Context, _ *harness.Run) (s store, err error) {
	p, err := newCluster(ctx)
	if err != nil {
		return store{}, err
	}
	remove := func() error { return os.RemoveAll(p.dir) }
	addr, err := fleet.FreeAddress(ctx)
	if err != nil {
		return store{}, errors.Join(err, remove())
	}
	host, port, _ := net.SplitHostPort(addr)
	cmd, err := p.command(ctx, "postgres", "-D", filepath.Join(p.dir, "data"), "-h", host, "-p", port, "-k", p.dir,
		"-c", "synchronous_commit=off", "-c", "wal_writer_delay=1s", "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB")
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return store{}, errors.Join(err, remove())
	}
	s.addr = "postgres://bench@" + addr + "/postgres?sslmode=disable"
	s.stop = func() error {
		err := cmd.Process.Signal(syscall.SIGQUIT) // which also ends its children
		_ = cmd.Wait()                             // the exit code doesn't matter
		return errors.Join(err, remove())
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = fleet.Await(ctx, func() bool {
		conn, err := pgx.Connect(ctx, s.addr)
		return err == nil && conn.Close(ctx) == nil
	})
	if err != nil {
		return store{}, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), s.stop())
	}
	return s, nil
}

// newCluster makes a cluster. PostgreSQL refuses to run as root, so for root it runs as
// the user of Debian's package, or as nobody. That user can't read the run's folder, so
// the cluster has a temporary folder of its own.
func newCluster(ctx context.Context) (p postgres, err error) {
	if p.dir, err = os.MkdirTemp("", "bench-postgres-"); err != nil {
		return p, err
	}
	if os.Getuid() == 0 {
		uid, gid, err := ordinaryUser()
		if err == nil {
			err = os.Chown(p.dir, uid, gid)
		}
		if err != nil {
			return p, errors.Join(err, os.Remove(p.dir))
		}
		p.attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}} //nolint:gosec // IDs of users
	}
	cmd, err := p.command(ctx, "initdb", "-D", filepath.Join(p.dir, "data"), "-U", "bench", "-A", "trust", "-E", "UTF8",
		"--no-locale", "--no-sync")
	if err == nil {
		err = cmd.Run()
	}
	if err != nil {
		return p, errors.Join(fmt.Errorf("make a cluster of PostgreSQL: %w", err), os.RemoveAll(p.dir))
	}
	return p, nil
}

func ordinaryUser() (uid, gid int, err error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return 0, 0, err
	}
	uid, err = strconv.Atoi(u.Uid)
	if err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

func (p postgres) command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	path, err := postgresProgram(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // PostgreSQL's own
	cmd.Dir, cmd.SysProcAttr = p.dir, p.attr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	return cmd, nil
}
