package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// MasterName is the sentinels' name for the master they watch.
const MasterName = "duefleet"

// SentinelConfig configures RedisSentinels.
type SentinelConfig struct {
	// Dir is the parent of the servers' folders. It is made if missing. Required.
	Dir string
	// Replicas is the number of the master's replicas, at least 1. Sentinels is at least
	// 3, so that a majority is left to replace a master. Required.
	Replicas, Sentinels int
	// DownAfter is how long a master may be silent before it counts as down. Defaults to
	// 2 s.
	DownAfter time.Duration
	// Args are added to the arguments of every redis-server. Defaults to none.
	Args []string
}

// RedisSentinels is a Redis with replicas, and the sentinels that watch it.
type RedisSentinels struct {
	// Servers holds the initial master, then its replicas.
	Servers   []*Redis
	Sentinels []*Redis
}

// StartRedisSentinels returns when every sentinel knows all others and all replicas.
func StartRedisSentinels(ctx context.Context, cfg SentinelConfig) (*RedisSentinels, error) {
	if cfg.Sentinels < 3 || cfg.Replicas < 1 {
		return nil, fmt.Errorf("start redis sentinels: %d replicas and %d sentinels, want at least 1 and 3", cfg.Replicas,
			cfg.Sentinels)
	}
	if cfg.DownAfter == 0 {
		cfg.DownAfter = 2 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s := &RedisSentinels{Servers: make([]*Redis, 1+cfg.Replicas), Sentinels: make([]*Redis, cfg.Sentinels)}
	if err := s.start(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("start redis sentinels: %w", err), s.Kill())
	}
	return s, nil
}

func (s *RedisSentinels) start(ctx context.Context, cfg SentinelConfig) (err error) {
	dir := func(kind string, i int) string { return filepath.Join(cfg.Dir, kind+"-"+strconv.Itoa(i)) }
	if s.Servers[0], err = StartRedis(ctx, RedisConfig{Dir: dir("redis", 0), Args: cfg.Args}); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(s.Servers[0].Addr())
	g, starting := errgroup.WithContext(ctx)
	for i := 1; i < len(s.Servers); i++ {
		g.Go(func() (err error) {
			args := append([]string{"--replicaof", host + " " + port}, cfg.Args...)
			s.Servers[i], err = StartRedis(starting, RedisConfig{Dir: dir("redis", i), Args: args})
			return err
		})
	}
	for i := range s.Sentinels {
		g.Go(func() (err error) {
			s.Sentinels[i], err = startSentinel(starting, dir("sentinel", i), host, port, cfg)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return s.await(ctx)
}

// startSentinel starts a sentinel with a configuration file, which the sentinel rewrites
// later.
func startSentinel(ctx context.Context, dir, host, port string, cfg SentinelConfig) (*Redis, error) {
	dir, err := makeDir(dir)
	if err != nil {
		return nil, err
	}
	conf := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s %[4]d\nsentinel down-after-milliseconds %[1]s %[5]d\n"+
		"sentinel failover-timeout %[1]s %[6]d\nsentinel parallel-syncs %[1]s 1\n",
		MasterName, host, port, cfg.Sentinels/2+1, cfg.DownAfter.Milliseconds(), (5 * cfg.DownAfter).Milliseconds())
	path := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	return StartRedis(ctx, RedisConfig{Dir: dir, sentinel: path})
}

// await returns when every sentinel knows all the others and all replicas.
func (s *RedisSentinels) await(ctx context.Context) error {
	for _, one := range s.Sentinels {
		client := redis.NewSentinelClient(&redis.Options{Addr: one.Addr()})
		defer client.Close()
		for {
			known, err := client.Master(ctx, MasterName).Result()
			if err == nil && known["num-slaves"] == strconv.Itoa(len(s.Servers)-1) &&
				known["num-other-sentinels"] == strconv.Itoa(len(s.Sentinels)-1) {
				break
			}
			select {
			case <-ctx.Done():
				return errors.Join(fmt.Errorf("sentinel %s does not know all others", one.Addr()), err, ctx.Err())
			case <-time.After(askEvery):
			}
		}
	}
	return nil
}

// Addrs returns the sentinels' addresses, "127.0.0.1:port".
func (s *RedisSentinels) Addrs() []string {
	addrs := make([]string, len(s.Sentinels))
	for i, one := range s.Sentinels {
		addrs[i] = one.Addr()
	}
	return addrs
}

// Master returns the server that the sentinels name as the master now.
func (s *RedisSentinels) Master(ctx context.Context) (*Redis, error) {
	var errs []error
	for _, one := range s.Sentinels {
		client := redis.NewSentinelClient(&redis.Options{Addr: one.Addr()})
		at, err := client.GetMasterAddrByName(ctx, MasterName).Result()
		errs = append(errs, err, client.Close())
		for _, r := range s.Servers {
			if err == nil && r.Addr() == strings.Join(at, ":") {
				return r, nil
			}
		}
	}
	return nil, errors.Join(append(errs, errors.New("no sentinel knows the master"))...)
}

// Kill ends all servers with SIGKILL, as a crash would.
func (s *RedisSentinels) Kill() error {
	var errs []error
	for _, r := range append(append([]*Redis{}, s.Sentinels...), s.Servers...) {
		if r != nil {
			errs = append(errs, r.Kill())
		}
	}
	return errors.Join(errs...)
}
