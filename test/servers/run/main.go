// Command withservers starts a Redis, a RabbitMQ and a Consul, runs a command
// with the variables that package servertest reads, stops the servers, and ends
// with the command's exit code:
//
//	withservers -- go test ./...
//
// With -cluster the Redis is a cluster of three masters with a replica each.
//
// One set of servers then does for all test binaries of the run. Nothing outlives
// it: the command and all that it starts in its process group end with withservers,
// and so do the servers. A server that ends while it is needed ends the run. What
// failed is followed by the end of each server's log.
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
	// grace is what the command has to end after SIGTERM.
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
	// A child's death signal follows the thread that started it: this one is
	// there until the end.
	runtime.LockOSThread()
	code, err := run(*cluster, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)
	}
	os.Exit(code)
}

// run keeps the servers' logs where something went wrong, until the next run.
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

// command runs in a process group of its own. When ctx ends first, the whole group
// gets SIGTERM, and SIGKILL if the command is still there after grace; the error is
// the cause. What the command leaves behind in its group is killed.
func command(ctx context.Context, args, env []string) (int, error) {
	cmd := exec.Command(args[0], args[1:]...) //nolint:gosec,noctx // running it is what we are for; its group ends with ctx
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

// one is what withservers needs of each server.
type one interface {
	Ended() <-chan struct{}
	Log() string
	Kill() error
}

// shared are the servers that one run shares.
type shared struct {
	clustered bool // which of the two it is

	redis    *servers.Redis
	cluster  *servers.RedisCluster
	rabbitmq *servers.RabbitMQ
	consul   *servers.Consul
}

// start starts all at once: RabbitMQ takes as long as it takes.
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

// all are those that were started.
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

// await returns an error that names the first server to end, or nil when ctx does.
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

// kill ends what was started. Their data goes with their folder, so nothing is
// lost by not stopping them gracefully.
func (s *shared) kill() {
	for _, server := range s.all() {
		_ = server.Kill()
	}
}
