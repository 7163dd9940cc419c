//go:build chaos

// Command crasher is a scanner that kills itself at one step of its work: before or after
// the n-th execution of one of its scripts. DUEFLEET_TEST_CRASH names the step. Examples
// are "after claim 20", and "after claim 20 2ms", which is two milliseconds later, in the
// middle of publishing.
package main

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/scanner"
	"github.com/duefleet/duefleet/internal/shard"
)

func main() {
	if err := run(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := config.Load(path, os.Environ())
	if err != nil {
		return err
	}
	options, err := cfg.Redis.Options(nil)
	if err != nil {
		return err
	}
	rdb := redis.NewUniversalClient(options)
	defer rdb.Close()
	point, err := newCrashPoint(os.Getenv("DUEFLEET_TEST_CRASH"))
	if err != nil {
		return err
	}
	rdb.AddHook(point)
	store, _, err := shard.Open(rdb, nil, cfg.Redis.Prefix, cfg.Redis.MinReplicas)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	member, err := scanner.New(scanner.Config{
		Settings: cfg, Source: config.NewFile(path, nil), Store: store, Instance: scanner.Instance(), Version: "crasher",
		Log: log,
	})
	if err != nil {
		return err
	}
	return member.Run(ctx)
}

// crashPoint is a redis.Hook that kills this process at its step.
type crashPoint struct {
	after bool
	claim bool   // only claims that return tasks count
	hash  string // of the script
	later time.Duration
	left  atomic.Int64 // executions left until the crash
}

func newCrashPoint(text string) (*crashPoint, error) {
	var when, script, later string
	var number int64
	if n, _ := fmt.Sscan(text, &when, &script, &number, &later); n < 3 {
		return nil, fmt.Errorf("crash point %q: want before or after, a script, a number and perhaps a delay", text)
	}
	source, err := shard.Script(script)
	if err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	p := &crashPoint{after: when == "after", claim: script == "claim", hash: hex.EncodeToString(sum[:])}
	p.left.Store(number)
	if later != "" {
		p.later, err = time.ParseDuration(later)
	}
	return p, err
}

// DialHook implements redis.Hook.
func (p *crashPoint) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook. It doesn't send the commands after the step.
func (p *crashPoint) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for i, cmd := range cmds {
			if !p.mine(cmd) || p.left.Add(-1) != 0 {
				continue
			}
			if p.after {
				i++
			}
			if i > 0 {
				_ = next(ctx, cmds[:i])
			}
			p.crash()
		}
		return next(ctx, cmds)
	}
}

func (p *crashPoint) mine(cmd redis.Cmder) bool {
	return len(cmd.Args()) > 1 && cmd.Args()[1] == p.hash
}

// ProcessHook implements redis.Hook.
func (p *crashPoint) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		mine := p.mine(cmd)
		if mine && !p.after && p.left.Add(-1) == 0 {
			p.crash()
		}
		err := next(ctx, cmd)
		if mine && p.after && err == nil && (!p.claim || !empty(cmd)) && p.left.Add(-1) == 0 {
			if p.later > 0 {
				time.AfterFunc(p.later, p.crash)
				return err
			}
			p.crash()
		}
		return err
	}
}

// empty reports whether a claim returned no tasks.
func empty(cmd redis.Cmder) bool {
	c, ok := cmd.(*redis.Cmd)
	if !ok || len(cmd.Args()) < 4 {
		return true
	}
	answer, err := c.Slice()
	return err == nil && len(answer) == 5
}

func (p *crashPoint) crash() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // wait for the signal
}
