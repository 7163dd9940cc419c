// Command stackrun starts a Redis, a RabbitMQ and a Consul, runs a command
// with the variables that package stacktest reads, stops the servers, and ends
// with the command's exit code:
//
//	go run ./internal/stack/stackrun -- go test ./...
//
// With -cluster the Redis is a cluster of three masters with a replica each.
//
// One set of servers then does for all test binaries of the run.
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
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/stack"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	cluster := flag.Bool("cluster", false, "start a Redis Cluster")
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: stackrun [-cluster] -- command [argument]...") }
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(exitUsage)
	}
	code, err := run(*cluster, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "stackrun:", err)
	}
	os.Exit(code)
}

// run keeps the servers' logs where something went wrong.
func run(cluster bool, args []string) (int, error) {
	dir, err := os.MkdirTemp("", "duefleet-stackrun-")
	if err != nil {
		return exitFailed, err
	}
	// The command has the terminal's signals too. When it is over, so are the
	// servers; until then they are needed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	set := &servers{clustered: cluster}
	defer set.kill()
	if err := set.start(ctx, dir); err != nil {
		return exitFailed, err
	}
	code, err := command(ctx, args, set.env())
	if err != nil || code != 0 {
		fmt.Fprintln(os.Stderr, "stackrun: the logs of the servers are in", dir)
		return code, err
	}
	set.kill()
	return code, os.RemoveAll(dir)
}

// command passes an interrupt on as SIGTERM, and kills what still runs ten
// seconds later.
func command(ctx context.Context, args, env []string) (int, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // running it is what we are for
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return exitFailed, fmt.Errorf("run %s: %w", args[0], err)
	}
	return 0, nil
}

// servers are the set that one run shares.
type servers struct {
	clustered bool // which of the two it is

	redis    *stack.Redis
	cluster  *stack.RedisCluster
	rabbitmq *stack.RabbitMQ
	consul   *stack.Consul
}

// start starts all at once: RabbitMQ takes as long as it takes.
func (s *servers) start(ctx context.Context, dir string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		dir := filepath.Join(dir, "redis")
		if s.clustered {
			s.cluster, err = stack.StartRedisCluster(ctx, stack.RedisClusterConfig{Dir: dir, Masters: 3, Replicas: 1})
		} else {
			s.redis, err = stack.StartRedis(ctx, stack.RedisConfig{Dir: dir})
		}
		return err
	})
	g.Go(func() (err error) {
		cfg := stack.RabbitMQConfig{Dir: filepath.Join(dir, "rabbitmq"), Management: true}
		s.rabbitmq, err = stack.StartRabbitMQ(ctx, cfg)
		return err
	})
	g.Go(func() (err error) {
		s.consul, err = stack.StartConsul(ctx, stack.ConsulConfig{Dir: filepath.Join(dir, "consul")})
		return err
	})
	return g.Wait()
}

func (s *servers) env() []string {
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

// kill ends what was started. Their data goes with their folder, so nothing is
// lost by not stopping them gracefully.
func (s *servers) kill() {
	if s.redis != nil {
		_ = s.redis.Kill()
	}
	if s.cluster != nil {
		_ = s.cluster.Kill()
	}
	if s.rabbitmq != nil {
		_ = s.rabbitmq.Kill()
	}
	if s.consul != nil {
		_ = s.consul.Kill()
	}
}
