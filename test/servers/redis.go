package servers

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// RedisConfig configures a Redis.
type RedisConfig struct {
	// Dir is the folder for the append-only file and the log. It is made if missing.
	// Required.
	Dir string
	// Port is the port on 127.0.0.1. Defaults to a free one.
	Port int
	// File is a configuration file, which the server may rewrite. Defaults to none.
	File string
	// Args are added to redis-server's arguments, as in "--maxmemory", "100mb". They win
	// over this package's own settings. Defaults to none.
	Args []string

	// Env is added to this process's environment. Defaults to none.
	Env []string

	sentinel   string // a sentinel's configuration file; empty for a server
	clusterBus bool   // a node of a cluster, which listens on a second port for the other nodes
}

// Redis is a redis-server. It appends every write to a file and syncs it once per second,
// so that Restart finds the data after Stop or Kill.
type Redis struct {
	server
	addr string
	bus  string // the port for other nodes of a cluster; empty without a cluster
}

// StartRedis returns when Redis answers. ctx limits the start only.
func StartRedis(ctx context.Context, cfg RedisConfig) (*Redis, error) {
	path, err := Find("redis-server")
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	ports := &ports{}
	port, err := ports.choose(ctx, cfg.Port)
	if err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	args := []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir}
	if cfg.sentinel != "" {
		args = append([]string{cfg.sentinel, "--sentinel"}, args...)
	} else {
		if cfg.File != "" {
			args = append([]string{cfg.File}, args...)
		}
		args = append(args, "--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--acllog-max-len", "100000")
	}
	r := &Redis{addr: address(port)}
	listens := []string{r.addr}
	if cfg.clusterBus {
		// Redis's default is the port 10000 above, which another process may use.
		bus, err := ports.choose(ctx, 0)
		if err != nil {
			return nil, fmt.Errorf("start redis-server: %w", err)
		}
		r.bus = strconv.Itoa(bus)
		args, listens = append(args, "--cluster-port", r.bus), append(listens, address(bus))
	}
	r.server = server{
		main: &process{
			name: "redis-server", path: path, args: append(args, cfg.Args...), env: append(os.Environ(), cfg.Env...),
			dir: dir, log: filepath.Join(dir, "redis.log"),
		},
		listens: listens,
		ready:   r.ping,
		ports:   ports,
	}
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// Addr returns the server's address, "127.0.0.1:port".
func (r *Redis) Addr() string { return r.addr }

// ping returns nil once Redis serves commands or asks for a password. While a server
// loads its file, it answers LOADING.
func (r *Redis) ping(ctx context.Context) error {
	reply, err := exchange(ctx, r.addr, "PING\r\n")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(reply, "+PONG") && !strings.HasPrefix(reply, "-NOAUTH") {
		return fmt.Errorf("ping: %s", reply)
	}
	return nil
}

// exchange sends a line and returns the first line of the reply.
func exchange(ctx context.Context, addr, line string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askLimit)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte(line)); err != nil {
		return "", err
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(reply), err
}
