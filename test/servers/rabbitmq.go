package servers

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// RabbitMQConfig configures a RabbitMQ.
type RabbitMQConfig struct {
	// Dir is the folder for all of the node's files. It is made if missing. Required.
	Dir string
	// Port is the AMQP port on 127.0.0.1. Defaults to a free one.
	Port int
	// Nodename is the part of the node's name before the @. Defaults to "duefleet-" and
	// the port.
	Nodename string
	// Management enables the management plugin and its HTTP API on a free port. The start
	// then takes some seconds longer.
	Management bool
	// Conf is added to rabbitmq.conf, as in "vm_memory_high_watermark.absolute = 64MB".
	// It wins over this package's own settings. Defaults to none.
	Conf string

	cluster *rabbitCluster // nil for a node without a cluster
}

// rabbitCluster holds the values that all nodes of a cluster share.
type rabbitCluster struct {
	cookie string
	epmd   int // the port of epmd
}

// RabbitMQ is an independent node: it shares its name, ports, port mapper, cookie and
// files with no other node. The user is guest, with the password guest.
type RabbitMQ struct {
	server
	addr       string
	management string
	bin        string
}

// nodePorts are the ports of one node.
type nodePorts struct {
	amqp, dist, epmd, management int
}

// StartRabbitMQ returns when the node accepts AMQP connections and, with Management, HTTP
// requests. ctx limits the start only. It takes 5 to 8 s.
func StartRabbitMQ(ctx context.Context, cfg RabbitMQConfig) (*RabbitMQ, error) {
	path, err := Find("rabbitmq-server")
	if err != nil {
		return nil, err
	}
	epmd, err := findEpmd()
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("start rabbitmq-server: %w", err)
	}
	held := &ports{}
	at, err := chooseNodePorts(ctx, cfg, held)
	if err != nil {
		return nil, fmt.Errorf("start rabbitmq-server: %w", err)
	}
	if err := writeNodeFiles(cfg, dir, at); err != nil {
		return nil, fmt.Errorf("start rabbitmq-server: %w", err)
	}
	r := &RabbitMQ{addr: address(at.amqp), bin: filepath.Dir(path)}
	listens := []string{r.addr, address(at.dist)}
	var side *process
	if cfg.cluster == nil {
		side, listens = epmdProcess(epmd, dir, at.epmd), append(listens, address(at.epmd))
	}
	if cfg.Management {
		r.management = "http://guest:guest@" + address(at.management)
		listens = append(listens, address(at.management))
	}
	env := nodeEnv(cfg, dir, at)
	r.server = server{
		main:    &process{name: "rabbitmq-server", path: path, env: env, dir: dir, log: filepath.Join(dir, "rabbitmq.log")},
		side:    side,
		listens: listens,
		ready:   r.answers,
		ports:   held,
	}
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// URL returns the node's AMQP URL for a vhost, as in "/" or "orders".
func (r *RabbitMQ) URL(vhost string) string { return amqpURL(r.addr, vhost) }

// ManagementURL returns the root of the HTTP API with user and password. Append
// "/api/..." to it. It is empty without Management.
func (r *RabbitMQ) ManagementURL() string { return r.management }

// Node returns ManagementURL and the AMQP port in one value, as in
// "http://guest:guest@127.0.0.1:15672?amqp=5672". Package servertest reads it from
// DUEFLEET_TEST_RABBITMQ. It needs Management.
func (r *RabbitMQ) Node() string {
	_, port, _ := strings.Cut(r.addr, ":")
	return r.management + "?amqp=" + port
}

// Ctl runs rabbitmqctl on this node and returns its output. It takes a second or two,
// most of it for the start of an Erlang VM.
func (r *RabbitMQ) Ctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(r.bin, "rabbitmqctl"), append([]string{"-q"}, args...)...) //nolint:gosec // the caller chooses the arguments
	cmd.Env, cmd.Dir = r.main.env, r.main.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("rabbitmqctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// AddVhost makes a vhost that guest may use. It uses the HTTP API with Management,
// otherwise Ctl, which takes seconds.
func (r *RabbitMQ) AddVhost(ctx context.Context, name string) error {
	if r.management != "" {
		return AddVhost(ctx, r.management, name)
	}
	if _, err := r.Ctl(ctx, "add_vhost", name); err != nil {
		return err
	}
	_, err := r.Ctl(ctx, "set_permissions", "-p", name, "guest", ".*", ".*", ".*")
	return err
}

// DeleteVhost removes a vhost with everything in it, and closes its connections. A
// missing vhost is an error.
func (r *RabbitMQ) DeleteVhost(ctx context.Context, name string) error {
	if r.management != "" {
		return DeleteVhost(ctx, r.management, name)
	}
	_, err := r.Ctl(ctx, "delete_vhost", name)
	return err
}

// connect logs in to the default vhost.
func (r *RabbitMQ) connect(ctx context.Context) (*amqp.Connection, error) {
	dial := func(network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return conn, conn.SetDeadline(time.Now().Add(askLimit))
	}
	return amqp.DialConfig(r.URL("/"), amqp.Config{Dial: dial})
}

// answers returns nil once a client can log in to the default vhost and the HTTP API
// answers, if it is enabled.
func (r *RabbitMQ) answers(ctx context.Context) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	if r.management == "" {
		return nil
	}
	return manage(ctx, "GET", r.management+"/api/whoami", "")
}

func amqpURL(addr, vhost string) string {
	if vhost == "/" {
		vhost = ""
	}
	return "amqp://guest:guest@" + addr + "/" + url.PathEscape(vhost)
}

func chooseNodePorts(ctx context.Context, cfg RabbitMQConfig, held *ports) (nodePorts, error) {
	var at nodePorts
	var err error
	if at.amqp, err = held.choose(ctx, cfg.Port); err != nil {
		return at, err
	}
	if at.dist, err = held.choose(ctx, 0); err != nil {
		return at, err
	}
	if cfg.cluster != nil {
		at.epmd = cfg.cluster.epmd
	} else if at.epmd, err = held.choose(ctx, 0); err != nil {
		return at, err
	}
	at.management, err = held.choose(ctx, 0)
	return at, err
}

// writeNodeFiles writes the node's configuration, its enabled plugins, and the cookie
// that it shares with rabbitmqctl.
func writeNodeFiles(cfg RabbitMQConfig, dir string, at nodePorts) error {
	conf, plugins := "", "[]."
	if cfg.Management {
		conf = fmt.Sprintf("management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = %d\n", at.management)
		plugins = "[rabbitmq_management]."
	}
	files := map[string]string{
		"rabbitmq.conf":   conf + cfg.Conf + "\n",
		"enabled_plugins": plugins + "\n",
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	cookie := filepath.Join(dir, ".erlang.cookie")
	if _, err := os.Stat(cookie); err == nil {
		return nil
	}
	secret := fmt.Sprintf("duefleet-%d-%d", at.amqp, time.Now().UnixNano())
	if cfg.cluster != nil {
		secret = cfg.cluster.cookie
	}
	return os.WriteFile(cookie, []byte(secret), 0o400)
}

// nodeEnv separates the node's files, name and ports from other nodes and from the
// system's RabbitMQ service. rabbitmqctl uses the same environment.
func nodeEnv(cfg RabbitMQConfig, dir string, at nodePorts) []string {
	name := cfg.Nodename
	if name == "" {
		name = "duefleet-" + strconv.Itoa(at.amqp)
	}
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8", "LC_ALL=C.UTF-8",
		"ERL_EPMD_PORT=" + strconv.Itoa(at.epmd), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_NODENAME=" + name + "@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT=" + strconv.Itoa(at.amqp),
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(at.dist),
		"RABBITMQ_MNESIA_BASE=" + filepath.Join(dir, "mnesia"),
		"RABBITMQ_LOG_BASE=" + filepath.Join(dir, "log"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(dir, "enabled_plugins"),
		"RABBITMQ_PID_FILE=" + filepath.Join(dir, "rabbitmq.pid"),
		"RABBITMQ_CONFIG_FILE=" + filepath.Join(dir, "rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + filepath.Join(dir, "advanced.config"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + filepath.Join(dir, "generated"),
		"RABBITMQ_SCHEMA_DIR=" + filepath.Join(dir, "schema"),
		// The script execs the Erlang VM instead of waiting for it. Signals, the death
		// signal included, then reach the VM.
		"RABBITMQ_ALLOW_INPUT=1", "RABBITMQ_SERVER_START_ARGS=-noinput",
		// Two schedulers that sleep when idle, ports on 127.0.0.1 only, and a short
		// timeout for silent cluster nodes.
		"RABBITMQ_SCHEDULER_BIND_TYPE=u", "RABBITMQ_SCHEDULER_BUSY_WAIT_THRESHOLD=none",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 2:2 -kernel inet_dist_use_interface {127,0,0,1} net_ticktime 10 " +
			"-start_epmd false",
	}
}

// epmdProcess returns Erlang's port mapper as a process of ours. One that the node starts
// itself would outlive the node.
func epmdProcess(path, dir string, port int) *process {
	return &process{
		name: "epmd", path: path, args: []string{"-port", strconv.Itoa(port), "-address", "127.0.0.1"},
		env: []string{"PATH=" + os.Getenv("PATH")}, dir: dir, log: filepath.Join(dir, "epmd.log"),
	}
}

func findEpmd() (string, error) {
	if path := findChosen("epmd"); path != "" {
		return path, nil
	}
	if path, err := exec.LookPath("epmd"); err == nil {
		return path, nil
	}
	if path := firstExecutable([]string{"/usr/bin/epmd", "/usr/lib/erlang/bin/epmd"}); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("epmd is not installed; to install it: apt-get install erlang-base")
}
