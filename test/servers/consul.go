package servers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// ConsulConfig configures a Consul.
type ConsulConfig struct {
	// Dir is the folder for the data and the log. It is made if missing. Required.
	Dir string
	// Port is the port of the HTTP API on 127.0.0.1. Defaults to a free one.
	Port int
	// Binary is the path of consul. Defaults to the one that Find returns.
	Binary string
	// HCL is added to the configuration, as in `acl { enabled = true }`. Defaults to
	// none.
	HCL string
}

// Consul is a consul server of one node.
type Consul struct {
	server
	addr string
	hcl  string // the file of ConsulConfig.HCL
}

// StartConsul starts a server and returns when it serves consistent reads. ctx limits the
// start only.
func StartConsul(ctx context.Context, cfg ConsulConfig) (*Consul, error) {
	path, err := consulBinary(cfg)
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("start consul: %w", err)
	}
	ports := &ports{}
	port, err := ports.choose(ctx, cfg.Port)
	if err != nil {
		return nil, fmt.Errorf("start consul: %w", err)
	}
	c := &Consul{addr: address(port), hcl: filepath.Join(dir, "more.hcl")}
	args, err := consulArgs(ctx, c.hcl, dir, port, ports)
	if err != nil {
		return nil, fmt.Errorf("start consul: %w", err)
	}
	if err := os.WriteFile(c.hcl, []byte(cfg.HCL), 0o600); err != nil {
		return nil, fmt.Errorf("start consul: %w", err)
	}
	c.server = server{
		main: &process{
			name: "consul", path: path, args: args, env: os.Environ(),
			dir: dir, log: filepath.Join(dir, "consul.log"),
		},
		listens: []string{c.addr},
		ready:   c.readConsistently,
		ports:   ports,
	}
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload replaces the configuration of ConsulConfig.HCL in a running agent. Only keys
// that Consul calls reloadable take effect.
func (c *Consul) Reload(hcl string) error {
	if err := os.WriteFile(c.hcl, []byte(hcl), 0o600); err != nil {
		return fmt.Errorf("reload consul: %w", err)
	}
	return c.main.signal(syscall.SIGHUP, false)
}

// Addr returns the address of the HTTP API, "127.0.0.1:port".
func (c *Consul) Addr() string { return c.addr }

func consulBinary(cfg ConsulConfig) (string, error) {
	if cfg.Binary != "" {
		return filepath.Abs(cfg.Binary)
	}
	return Find("consul")
}

// consulArgs returns the arguments for a single server that keeps its data in dir. It
// doesn't use "agent -dev", because that agent keeps nothing on disk.
func consulArgs(ctx context.Context, hcl, dir string, port int, ports *ports) ([]string, error) {
	serverPort, err := ports.choose(ctx, 0)
	if err != nil {
		return nil, err
	}
	serfPort, err := ports.choose(ctx, 0)
	if err != nil {
		return nil, err
	}
	return []string{
		"agent", "-server", "-bootstrap-expect=1", "-data-dir", filepath.Join(dir, "data"),
		"-node", "duefleet", "-bind", "127.0.0.1", "-client", "127.0.0.1",
		"-http-port", strconv.Itoa(port), "-server-port", strconv.Itoa(serverPort),
		"-serf-lan-port", strconv.Itoa(serfPort), "-serf-wan-port", "-1",
		"-dns-port", "-1", "-grpc-port", "-1", "-grpc-tls-port", "-1",
		"-log-level", "warn", "-hcl",
		// All fleets of a test run connect from one address, with two connections per scanner.
		"performance { raft_multiplier = 1 } leave_on_terminate = false disable_update_check = true connect { enabled = " +
			"false } " +
			"limits { http_max_conns_per_client = 10000 }",
		"-config-file", hcl,
	}, nil
}

// readConsistently returns nil once a leader serves consistent reads. A missing key, or a
// reply that access is denied, is proof enough.
func (c *Consul) readConsistently(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.addr+"/v1/kv/ready?consistent", nil)
	if err != nil {
		return err
	}
	resp, err := client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNotFound, http.StatusForbidden:
		return nil
	}
	return fmt.Errorf("consistent read: %s", resp.Status)
}
