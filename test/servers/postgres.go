package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Postgres is a PostgreSQL server with its own data folder (a cluster, in PostgreSQL's
// word), which Close removes. Stop ends the connections of its clients. Kill ends only
// the main process; the others notice it and end, too.
type Postgres struct {
	server
	url string
	dir string
}

// StartPostgres makes the data folder, and returns when the server answers. ctx limits
// the start only. args are added to the server's. PostgreSQL refuses to run as root. So if this process is root, the
// server runs as the user postgres of Debian's package, in a folder of that user.
func StartPostgres(ctx context.Context, args ...string) (*Postgres, error) {
	programs := map[string]string{"initdb": "", "postgres": "", "pg_isready": ""}
	for name := range programs {
		path, err := Find(name)
		if err != nil {
			return nil, err
		}
		programs[name] = path
	}
	dir, err := TempDir("postgres")
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	p := &Postgres{dir: dir}
	if err := p.begin(ctx, programs, args); err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), os.RemoveAll(dir))
	}
	return p, nil
}

func (p *Postgres) begin(ctx context.Context, programs map[string]string, args []string) error {
	owner, err := ordinaryUser("postgres")
	if err != nil {
		return err
	}
	if owner != nil {
		if err := os.Chown(p.dir, int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	data := filepath.Join(p.dir, "data")
	initdb := exec.CommandContext(ctx, programs["initdb"], //nolint:gosec // PostgreSQL's own
		"-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = p.dir, &syscall.SysProcAttr{Credential: owner}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	ports := &ports{}
	port, err := ports.choose(ctx, 0)
	if err != nil {
		return err
	}
	p.url = fmt.Sprintf("postgres://test@%s/postgres?sslmode=disable", address(port))
	p.server = server{
		main: &process{
			name: "postgres", path: programs["postgres"], env: os.Environ(), dir: p.dir,
			log: filepath.Join(p.dir, "postgres.log"),
			args: append([]string{"-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", p.dir, "-c", "fsync=off"},
				args...),
			quit: syscall.SIGINT, // at SIGTERM, PostgreSQL would wait for its clients
			user: owner,
		},
		listens: []string{address(port)},
		ready: func(ctx context.Context) error {
			return exec.CommandContext(ctx, programs["pg_isready"], "-q", "-h", "127.0.0.1", "-p", strconv.Itoa(port)).Run() //nolint:gosec // see above
		},
		ports: ports,
	}
	return p.start(ctx)
}

// URL returns the URL of the database postgres, with the superuser test, who needs no
// password.
func (p *Postgres) URL() string { return p.url }

// Close stops the server and removes its files.
func (p *Postgres) Close(ctx context.Context) error {
	return errors.Join(p.Stop(ctx), os.RemoveAll(p.dir))
}

// ordinaryUser returns the user of that name, for a server that refuses to run as root. It
// returns nil if this process doesn't run as root.
func ordinaryUser(name string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}
