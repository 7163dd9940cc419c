// Command withservers starts a Redis, a RabbitMQ and a Consul, and runs a command with
// the variables that package servertest reads. Then it stops the servers and exits with
// the command's exit code:
//
//	withservers -- go test ./...
//
// It first prints the versions of Redis and RabbitMQ.
//
// With -cluster the Redis is a cluster of three masters with a replica each.
//
// All test binaries of the run share these servers. Nothing outlives the run: the
// servers, the command and everything in its process group end with withservers. If a
// server ends too soon, the run fails. After a failure withservers prints the end of each
// server's log.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/test/servers"
)

const (
	exitFailed = 1
	exitUsage  = 2
	// grace is how long the command may run after SIGTERM.
	grace = 10 * time.Second
)

func main() {
	cluster := flag.Bool("cluster", false, "start a Redis Cluster")
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: withservers [-cluster] -- command [argument]...") }
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(exitUsage)
	}
	// A child's death signal depends on the thread that started it. The main goroutine's
	// thread lives until the end.
	runtime.LockOSThread()
	code, err := run(*cluster, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)
	}
	os.Exit(code)
}

// run starts the servers and runs the command. After a failure it keeps the servers' logs
// until the next run.
func run(cluster bool, args []string) (int, error) {
	dir, err := servers.TempDir("withservers")
	if err != nil {
		return exitFailed, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	set := &shared{clustered: cluster}
	defer set.kill()
	if err := set.start(ctx, dir); err != nil {
		return exitFailed, err
	}
	versions, err := set.versions(ctx)
	if err != nil {
		return exitFailed, err
	}
	fmt.Fprintln(os.Stderr, "withservers:", versions)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if err := set.await(ctx); err != nil {
			cancel(err)
		}
	}()
	code, err := command(ctx, args, set.env())
	if err != nil || code != 0 {
		set.printLogs()
		fmt.Fprintln(os.Stderr, "withservers: the logs of the servers are in", dir)
		return code, err
	}
	set.kill()
	return code, os.RemoveAll(dir)
}

// command runs a command in a process group of its own. If ctx ends first, the whole
// group gets SIGTERM, and SIGKILL after grace; the error is the cause of ctx's end. At
// the end, everything left in the group is killed.
func command(ctx context.Context, args, env []string) (int, error) {
	cmd := exec.Command(args[0], args[1:]...) //nolint:gosec,noctx // the caller chooses the command; its group ends with ctx
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = groupAttr()
	if err := cmd.Start(); err != nil {
		return exitFailed, fmt.Errorf("run %s: %w", args[0], err)
	}
	group := -cmd.Process.Pid
	defer func() { _ = syscall.Kill(group, syscall.SIGKILL) }()
	ended := make(chan struct{})
	var end error
	go func() {
		end = cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return exitCode(args[0], end)
	case <-ctx.Done():
	}
	_ = syscall.Kill(group, syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(grace):
	}
	return exitFailed, fmt.Errorf("ended %s: %w", args[0], context.Cause(ctx))
}

func exitCode(name string, err error) (int, error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return exitFailed, fmt.Errorf("run %s: %w", name, err)
	}
	return 0, nil
}

// one is the part of a server that withservers uses.
type one interface {
	Ended() <-chan struct{}
	Log() string
	Kill() error
}

// shared holds the servers that all test binaries of a run share.
type shared struct {
	clustered bool // the Redis is a cluster

	redis    *servers.Redis
	cluster  *servers.RedisCluster
	rabbitmq *servers.RabbitMQ
	consul   *servers.Consul
}

// start starts all servers at the same time, since RabbitMQ takes seconds.
func (s *shared) start(ctx context.Context, dir string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		dir := filepath.Join(dir, "redis")
		if s.clustered {
			s.cluster, err = servers.StartRedisCluster(ctx, servers.RedisClusterConfig{Dir: dir, Masters: 3, Replicas: 1})
		} else {
			s.redis, err = servers.StartRedis(ctx, servers.RedisConfig{Dir: dir})
		}
		return err
	})
	g.Go(func() (err error) {
		cfg := servers.RabbitMQConfig{Dir: filepath.Join(dir, "rabbitmq"), Management: true}
		s.rabbitmq, err = servers.StartRabbitMQ(ctx, cfg)
		return err
	})
	g.Go(func() (err error) {
		s.consul, err = servers.StartConsul(ctx, servers.ConsulConfig{Dir: filepath.Join(dir, "consul")})
		return err
	})
	return g.Wait()
}

// versions returns what the store and the broker report, as in
// "Redis 7.0.15, RabbitMQ 3.10.8".
func (s *shared) versions(ctx context.Context) (string, error) {
	redis := s.redis
	if s.clustered {
		redis = s.cluster.Nodes[0]
	}
	store, err := redis.Version(ctx)
	if err != nil {
		return "", fmt.Errorf("ask the store's version: %w", err)
	}
	broker, err := s.rabbitmq.Version(ctx)
	if err != nil {
		return "", fmt.Errorf("ask the broker's version: %w", err)
	}
	return store + ", " + broker, nil
}

func (s *shared) env() []string {
	redis := ""
	if s.clustered {
		redis = strings.Join(s.cluster.Addrs(), ",")
	} else {
		redis = s.redis.Addr()
	}
	return []string{
		"DUEFLEET_TEST_REDIS=" + redis,
		"DUEFLEET_TEST_RABBITMQ=" + s.rabbitmq.Node(),
		"DUEFLEET_TEST_CONSUL=" + s.consul.Addr(),
	}
}

// all returns the servers that were started.
func (s *shared) all() (all []one) {
	if s.redis != nil {
		all = append(all, s.redis)
	}
	if s.cluster != nil {
		for _, n := range s.cluster.Nodes {
			all = append(all, n)
		}
	}
	if s.rabbitmq != nil {
		all = append(all, s.rabbitmq)
	}
	if s.consul != nil {
		all = append(all, s.consul)
	}
	return all
}

// await returns an error that names the first server to end, or nil when ctx ends.
func (s *shared) await(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, server := range s.all() {
		ended := server.Ended()
		g.Go(func() error {
			select {
			case <-ended:
				return fmt.Errorf("a server ended while it was needed; its log is %s", server.Log())
			case <-ctx.Done():
				return nil
			}
		})
	}
	return g.Wait()
}

// printLogs writes the end of each server's log.
func (s *shared) printLogs() {
	for _, server := range s.all() {
		fmt.Fprintf(os.Stderr, "withservers: the end of %s:\n%s\n", server.Log(), servers.Tail(server.Log()))
	}
}

// kill ends all servers. Nothing is lost without a graceful stop, since the data's folder
// is deleted anyway.
func (s *shared) kill() {
	for _, server := range s.all() {
		_ = server.Kill()
	}
}
